use super::{Kind, Value};

/// Below this a p-value is printed by its power of ten.
const SMALL_P: f64 = 1e-3;

/// A value as people read it; `power` prints mantissa and exponent of a small p-value.
pub(crate) fn print(kind: Kind, value: &Value, power: impl Fn(&str, i32) -> String) -> String {
    match (value, kind) {
        (Value::Empty, _) => String::new(),
        (Value::Text(text), _) => text.clone(),
        (Value::Interval([low, high]), Kind::Interval(digits)) => format!("[{low:+.digits$}, {high:+.digits$}]"),
        (Value::Interval([low, high]), _) => format!("[{low}, {high}]"),
        (Value::Number(number), Kind::Count) => format!("{number:.0}"),
        (Value::Number(number), Kind::Number(digits)) => format!("{number:.digits$}"),
        (Value::Number(number), Kind::Signed(digits)) => format!("{number:+.digits$}"),
        (Value::Number(number), Kind::Percent) => format!("{:.1}", 100.0 * number),
        (Value::Number(p), Kind::PValue) if *p > 0.0 && *p < SMALL_P => {
            let text = format!("{p:.1e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            power(mantissa, exponent.parse().unwrap_or_default())
        }
        (Value::Number(p), Kind::PValue) => format!("{p:.3}"),
        (Value::Number(number), Kind::Text | Kind::Interval(_)) => number.to_string(),
    }
}
