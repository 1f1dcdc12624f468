use super::{Kind, Value};
use crate::stats::Interval;

/// The value below which a p-value is printed with an exponent.
const SMALL_P: f64 = 1e-3;

/// Formats a value for readers. `power` formats the mantissa and the exponent of a small p-value.
pub(crate) fn print(kind: Kind, value: &Value, power: impl Fn(&str, i32) -> String) -> String {
    match (value, kind) {
        (Value::Empty, _) => String::new(),
        (Value::Text(text), _) => text.clone(),
        (Value::Interval(Interval { low, high }), Kind::Interval(digits)) => {
            format!("[{}, {}]", signed(*low, digits), signed(*high, digits))
        }
        (Value::Interval(Interval { low, high }), _) => format!("[{low}, {high}]"),
        (Value::Number(number), Kind::Count) => format!("{number:.0}"),
        (Value::Number(number), Kind::Number(digits)) => format!("{number:.digits$}"),
        (Value::Number(number), Kind::Signed(digits)) => signed(*number, digits),
        (Value::Number(number), Kind::Percent) => format!("{:.1}", 100.0 * number),
        (Value::Number(p), Kind::PValue) if *p > 0.0 && *p < SMALL_P => {
            let text = format!("{p:.1e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            power(mantissa, exponent.parse().unwrap_or_default())
        }
        // The t of a perfect correlation is infinite, and tails underflow. More digits would tell more
        // than is known.
        (Value::Number(p), Kind::PValue) if *p == 0.0 => "0".to_owned(),
        (Value::Number(p), Kind::PValue) => format!("{p:.3}"),
        (Value::Number(number), Kind::Text | Kind::Interval(_)) => number.to_string(),
    }
}

/// Formats a number with its sign. A number that rounds to zero has a plus sign.
fn signed(number: f64, digits: usize) -> String {
    let text = format!("{number:+.digits$}");
    if text.trim_start_matches('-').bytes().all(|byte| matches!(byte, b'0' | b'.')) { text.replacen('-', "+", 1) } else { text }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Value, print, signed};

    #[test]
    fn a_p_value_of_zero_has_no_digits() {
        let printed =
            [0.0, 2e-4, 0.05].map(|p| print(Kind::PValue, &Value::Number(p), |mantissa, power| format!("{mantissa}e{power}")));
        assert_eq!(printed, ["0", "2.0e-4", "0.050"]);
    }

    #[test]
    fn zero_is_not_negative() {
        let printed = [-0.00004, -0.00006, 0.0, 0.00006, -1.0].map(|number| signed(number, 4));
        assert_eq!(printed, ["+0.0000", "-0.0001", "+0.0000", "+0.0001", "-1.0000"]);
        assert_eq!(signed(-0.4, 0), "+0");
    }
}
