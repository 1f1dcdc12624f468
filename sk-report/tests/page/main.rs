//! Pages: well formed, without active content, deterministic, and with every digit of their tables.

mod html;
mod story;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use sk_report::chart::{Axis, Bars, HeatMap, Intervals, Lines, Plot, Scatter3d, Series, Style, Ternary};
use sk_report::page::{Answer, Exchange, Fact, Figure, Page, Section};
use sk_report::stats::Interval;
use sk_report::table::{Column, Kind, Table, Value};

use html::Document;

/// Text that a model may write, or that a plan may give as a name.
const HOSTILE: &str = "</script></td><script>alert(1)</script><img src=x onerror=\"alert('2')\"><!-- &amp; {{ 7*7 }} %{x} ]]>";

fn table(id: &str, text: &str) -> Table {
    let columns = [
        ("method", Kind::Text),
        ("n", Kind::Count),
        ("F1", Kind::Number(3)),
        ("ΔF1", Kind::Signed(3)),
        ("95%", Kind::Interval(3)),
        ("p", Kind::PValue),
        ("share", Kind::Percent),
    ];
    let columns = columns.map(|(heading, kind)| Column { heading: heading.to_owned(), kind }).to_vec();
    let interval = Value::Interval(Interval { low: -0.123_456_789, high: 0.25 });
    let rows = vec![
        vec![text.into(), 12_usize.into(), 0.1_f64.into(), (-1.0 / 3.0).into(), interval, 2.46e-15.into(), 0.125.into()],
        vec!["ours, \"quoted\"".into(), Value::Empty, f64::NAN.into(), 0.5.into(), Value::Empty, 0.5.into(), 1.0.into()],
    ];
    Table { id: id.to_owned(), title: "A table".to_owned(), columns, rows, notes: vec![text.to_owned()], appendix: false }
}

/// A page with one element of every kind, and `text` for every text.
fn everything(text: &str) -> Page {
    let labels = [text.to_owned(), "b".to_owned()];
    let (points, simplex) = ([[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]], [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]);
    let axis = || Axis { range: Some([0.0, 1.0]), ..Axis::new(text) };
    let estimates = [(0.1, Interval { low: 0.0, high: 0.2 }), (f64::NAN, Interval::NONE)];
    let scatter = Scatter3d::new([axis(), axis(), axis()]).series(text, Style::Hue(0), &points, &labels).series(
        "b",
        Style::Hue(1),
        &points,
        &labels,
    );
    let ternary =
        Ternary::new([text, "b", "c"]).series(text, &simplex, &labels).colored(text, &simplex, &[0.1, 0.9], [0.0, 1.0], &labels);
    let bars = Bars::new(&labels, Axis { percent: true, ..axis() }).series(text, Style::Tone(0), &[1.0, 2.0], &[]).series(
        "b",
        Style::Tone(1),
        &[1.0, 2.0],
        &[Interval { low: 0.5, high: 2.0 }; 2],
    );
    let intervals = Intervals::new(&labels, axis()).series(text, Style::Tone(0), &estimates);
    let line = Series::line(text, vec![1.0, 2.0], vec![0.1, 0.2]);
    let band = Some([vec![0.0, 0.1], vec![0.2, 0.3]]);
    let intervals_of_b = [vec![Interval { low: 0.5, high: 1.5 }], Vec::new()];
    let b = Series { front: true, intervals: intervals_of_b, ..Series::points("b", vec![1.0], vec![f64::NAN]) };
    let lines = Lines {
        x: Axis { log: true, ..axis() },
        y: axis(),
        series: vec![Series { band, labels: labels.to_vec(), ..line }, b],
        rule: Some((0.5, text.to_owned())),
    };
    let heat = HeatMap {
        columns: (text.to_owned(), labels.to_vec()),
        rows: (text.to_owned(), labels.to_vec()),
        values: vec![vec![0.1, -0.2], vec![f64::NAN, 0.4]],
        scale: text.to_owned(),
        p: vec![vec![0.01, 0.2]],
        limit: Some(0.4),
    };
    let exchange = Exchange {
        title: text.to_owned(),
        prompt: text.to_owned(),
        answers: vec![Answer {
            heading: text.to_owned(),
            figures: vec![(text.to_owned(), text.to_owned())],
            text: text.to_owned(),
        }],
    };
    let fact = Fact { name: text.to_owned(), value: text.to_owned(), detail: text.to_owned() };
    let mut appendix = table("appendix", text);
    appendix.appendix = true;
    let prompts = [Some(text.to_owned()), None];
    Page {
        title: text.to_owned(),
        verdict: vec![text.to_owned()],
        lead: text.to_owned(),
        sections: vec![
            Section::new("one", text)
                .paragraph(text)
                .missing(text)
                .facts(vec![fact])
                .figure(Figure::new("scatter", text, scatter).caption(text).alt(text).behind(table("behind", text)))
                .figure(Figure::panels("panels", text, [(text, Plot::from(ternary)), ("b", bars.into())]).see("behind")),
            Section::new("two", "Two").figure(Figure::new("intervals", "I", intervals)).figure(Figure::new("lines", "L", lines)),
            Section::new("three", "Three")
                .figure(Figure::new("heat", "H", heat))
                .table_on_prompts(table("shown", text), 1, &prompts)
                .table(appendix),
            Section::new("four", "Four").exchange(exchange),
        ],
        colophon: text.to_owned(),
    }
}

#[test]
fn a_page_is_well_formed_and_its_links_lead_somewhere() {
    for text in ["plain text", HOSTILE] {
        let html = everything(text).html().unwrap();
        let document = Document::parse(&html).unwrap_or_else(|fault| panic!("{fault}"));
        document.check_ids();
        assert_eq!(document.count("figure"), 5);
        assert_eq!(document.count("table"), 3);
        // There are six charts, because a figure of two panels has two.
        assert_eq!(
            document.elements("div").filter(|element| element.class() == "plot" || element.class() == "plot scene").count(),
            6
        );
    }
}

/// An image has no controls in it.
#[test]
fn a_chart_with_a_toolbar_is_a_group_and_any_other_an_image() {
    let html = everything("plain text").html().unwrap();
    let document = Document::parse(&html).unwrap();
    for plot in document.elements("div").filter(|element| element.class().split(' ').next() == Some("plot")) {
        let role = if plot.class() == "plot scene" { "group" } else { "img" };
        assert_eq!(plot.attribute("role"), Some(role));
        assert!(plot.attribute("aria-label").is_some());
    }
    assert!(html.contains("displayModeBar: source.scene && !narrow()"));
}

#[test]
fn what_is_shown_is_text_whatever_it_says() {
    let html = everything(HOSTILE).html().unwrap();
    let document = Document::parse(&html).unwrap();
    let plain = Document::parse(&everything("plain text").html().unwrap()).unwrap();
    // The hostile text adds no element and no event handler.
    assert_eq!(document.tags(), plain.tags());
    assert_eq!(document.count("img"), 0);
    assert!(document.all().all(|element| element.attributes.iter().all(|(name, _)| !name.starts_with("on"))));
    assert_eq!(document.text_of("blockquote"), [HOSTILE, HOSTILE]);
    assert_eq!(document.text_of("h1"), [HOSTILE]);
    assert!(!html.contains("49 %{x}"), "a template in the text was evaluated");
}

#[test]
fn charts_read_back_and_take_text_literally() {
    let html = everything(HOSTILE).html().unwrap();
    let document = Document::parse(&html).unwrap();
    let plots: Vec<Json> = document
        .elements("script")
        .filter(|script| script.attribute("type") == Some("application/json"))
        .map(|script| serde_json::from_str(&script.text).unwrap())
        .collect();
    let kinds: Vec<&str> =
        plots.iter().flat_map(|plot| plot["data"].as_array().unwrap()).map(|t| t["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "scatter3d",
            "scatter3d",
            "scatterternary",
            "scatterternary",
            "bar",
            "bar",
            "scatter",
            "scatter",
            "scatter",
            "scatter",
            "scatter",
            "heatmap",
            "scatter"
        ]
    );
    assert_eq!(plots[0]["data"][0]["x"], serde_json::json!([0.1, 0.9]));
    let name = plots[0]["data"][0]["name"].as_str().unwrap();
    assert!(!name.contains('<') && name.contains("&lt;script&gt;"), "{name}");
    // Hover templates of Plotly hold no text of the page; they refer to escaped text.
    for trace in plots.iter().flat_map(|plot| plot["data"].as_array().unwrap()) {
        let silent = trace["hoverinfo"] == "skip";
        assert_eq!(trace["hovertemplate"], if silent { Json::Null } else { "%{hovertext}<extra></extra>".into() });
        assert!(!trace["hovertext"].to_string().contains("<script>"), "{trace}");
        assert!(silent || trace["hovertext"].to_string().contains("&lt;script&gt;"), "{trace}");
    }
    assert_eq!(plots[5]["data"][0]["z"][1], serde_json::json!([null, 0.4]), "NaN is a gap");
}

#[test]
fn nothing_is_asked_of_anybody() {
    let html = everything("plain text").html().unwrap();
    let document = Document::parse(&html).unwrap();
    for element in document.all() {
        for (name, value) in &element.attributes {
            let address = matches!(name.as_str(), "src" | "href" | "action" | "data" | "poster" | "srcset");
            assert!(!address || value.starts_with('#') || value == "data:,", "{} {name}={value}", element.name);
        }
    }
    let style = &document.elements("style").next().unwrap().text;
    assert!(!style.contains("url(") && !style.contains("@import"));
    let policy = document.elements("meta").find_map(|meta| {
        (meta.attribute("http-equiv") == Some("Content-Security-Policy")).then(|| meta.attribute("content").unwrap().to_owned())
    });
    let policy = policy.unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe-eval") && !policy.contains("http"), "{policy}");
    // The policy names the hashes of both scripts.
    use base64::Engine;
    let scripts: Vec<_> = document.elements("script").filter(|script| script.attribute("type").is_none()).collect();
    assert_eq!(scripts.len(), 2);
    for script in scripts {
        let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(&script.text));
        assert!(policy.contains(&format!("'sha256-{digest}'")));
    }
}

#[test]
fn a_page_without_charts_carries_no_library() {
    let sections = vec![Section::new("a", "A").paragraph("b")];
    let html = Page { title: "t".to_owned(), sections, ..Page::default() }.html().unwrap();
    assert!(html.len() < 40_000 && !html.contains("plotly.js 3"), "{}", html.len());
}

#[test]
fn the_same_page_gives_the_same_bytes() {
    assert_eq!(everything(HOSTILE).html().unwrap(), everything(HOSTILE).html().unwrap());
}

#[test]
fn tables_hold_the_digits_of_their_csv() {
    let html = everything(HOSTILE).html().unwrap();
    let document = Document::parse(&html).unwrap();
    for id in ["behind", "shown", "appendix"] {
        assert_eq!(document.csv(id), table(id, HOSTILE).csv(), "{id}");
    }
}

/// Relative luminance of a colour, and its OKLab coordinates for normal vision and for vision
/// without each kind of cone.
fn seen(hex: &str) -> (f64, [[f64; 3]; 4]) {
    // Machado, Oliveira and Fernandes 2009, severity 1: protanopia, deuteranopia, tritanopia.
    const CONES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];
    const LMS: [[f64; 3]; 3] = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ];
    const LAB: [[f64; 3]; 3] = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ];
    let times = |matrix: [[f64; 3]; 3], v: [f64; 3]| matrix.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum::<f64>());
    let linear = [1, 3, 5].map(|at| {
        let part = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    let luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    let lab = |cones| times(LAB, times(LMS, times(cones, linear).map(|part| part.clamp(0.0, 1.0))).map(f64::cbrt));
    (luminance, CONES.map(lab))
}

#[test]
fn any_eye_can_tell_the_colours_of_series_apart() {
    /// The least distance in OKLab. Black and white are 1 apart; about 0.02 is just noticeable.
    const APART: f64 = 0.09;
    /// The least contrast ratio between a colour and the page.
    const CONTRAST: f64 = 2.5;
    let html = Page::default().html().unwrap();
    let colors = |name: &str| -> Vec<&str> { html.split(&format!("--{name}: ")).skip(1).map(|rest| &rest[..7]).collect() };
    // The values of the light theme come first.
    for (mode, page) in colors("paper").into_iter().enumerate() {
        let series: Vec<&str> = (0..8).map(|i| colors(&format!("series-{i}"))[mode]).collect();
        for (i, one) in series.iter().enumerate() {
            let (luminance, views) = seen(one);
            let ends = [luminance + 0.05, seen(page).0 + 0.05];
            assert!(ends[0].max(ends[1]) / ends[0].min(ends[1]) > CONTRAST, "{one} on {page}");
            for other in &series[..i] {
                for (a, b) in views.into_iter().zip(seen(other).1) {
                    let distance = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(distance > APART, "{one} and {other}: {distance}");
                }
            }
        }
    }
    assert_eq!(colors("paper").len(), 2);
}

#[test]
fn the_wheel_is_left_to_the_page() {
    let html = everything("plain text").html().unwrap();
    assert!(html.contains("scrollZoom: false"));
    assert!(html.contains("addEventListener('wheel', (event) => event.stopPropagation(), { capture: true, passive: true })"));
}

/// A table scrolls in its frame, so that its names stay whole.
#[test]
fn a_long_name_is_broken_except_in_tables() {
    let html = everything("plain text").html().unwrap();
    let style = |selector: &str| html.split(&format!("\n{selector} {{")).nth(1).unwrap().split('}').next().unwrap();
    assert!(style("body").contains("overflow-wrap: anywhere") && style("table").contains("overflow-wrap: normal"));
}

#[test]
fn a_prompt_is_named_by_its_text_and_all_of_it_is_there() {
    let html = everything(HOSTILE).html().unwrap();
    let document = Document::parse(&html).unwrap();
    let named: Vec<_> = document.elements("td").filter(|cell| cell.class() == "prompt").collect();
    assert_eq!((named.len(), named[0].attribute("title")), (1, Some(HOSTILE)));
    assert!(named[0].text.ends_with('…') && HOSTILE.starts_with(named[0].text.trim_end_matches('…')), "{}", named[0].text);
    assert_eq!(named[0].attribute("data-fields"), Some("[\"12\"]"), "the file keeps the number");
    let heading = document.elements("span").find(|span| span.attribute("title").is_some()).unwrap();
    assert_eq!(heading.attribute("title"), Some(HOSTILE));
}

#[test]
fn prompts_and_answers_run_in_the_direction_of_their_text() {
    let html = everything("plain text").html().unwrap();
    let document = Document::parse(&html).unwrap();
    let directed: Vec<&str> =
        document.all().filter(|element| element.attribute("dir") == Some("auto")).map(|element| element.name.as_str()).collect();
    // The cell of a table, the heading of an exchange, its prompt and its answer.
    assert_eq!(directed, ["td", "span", "blockquote", "blockquote"]);
}

/// Numbers and short names break on paper, which does not scroll, and no check box is printed: the
/// rules for paper are no weaker than those for screens.
#[test]
fn a_table_fits_on_paper() {
    let html = everything("plain text").html().unwrap();
    let paper = html.split("@media print {").nth(1).unwrap().split("</style>").next().unwrap();
    let rule = |selector: &str| paper.lines().find(|line| line.contains(selector)).unwrap_or_else(|| panic!("no {selector}"));
    assert!(rule(".number, th[scope=\"row\"].short {").contains("white-space: normal"));
    assert!(rule("thead th.number {").contains("min-width: 0"));
    assert!(rule(".folding > .all,").contains("display: none"));
}

#[test]
fn the_library_is_the_one_its_readme_names() {
    let library = include_str!("../../src/page/plotly/plotly.min.js");
    let digest = format!("{:x}", Sha256::digest(library));
    assert!(include_str!("../../src/page/plotly/README.md").contains(&format!("{digest}  plotly.min.js")), "{digest}");
    assert!(!library.contains("</script"));
}
