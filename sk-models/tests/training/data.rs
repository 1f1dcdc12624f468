//! Texts and pairs as training reads them.

use std::{fs, io::Write, path::PathBuf};

use burn::tensor::Device;
use sk_models::train::data::{ASSISTANT, Corpus, Excluded, HUMAN, Row, frame, read_rows, write_rows};
use sk_models::train::data::{Cursor, DataOptions, END_OF_TEXT, END_OF_TURN, Source, Windows};
use sk_models::train::dpo::{train_dpo, unseen_pairs};
use sk_models::train::encoder::Encoder;
use sk_models::train::lm::train_lm;
use sk_models::train::tokenizer::{TokenizerOptions, train_tokenizer};

use super::{Workspace, data, with};

#[test]
fn windows_do_not_exceed_the_longest_context() {
    let workspace = Workspace::new();
    let options = with(workspace.lm("model"), |o| o.run.length = 65);
    let message = train_lm(&options, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("`length` is 65") && message.contains("64") && message.contains("--max-length"), "{message}");
    // A model to continue from has its length.
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let initial = Some(workspace.root.path().join("model"));
    let further = with(workspace.lm("further"), |o| (o.run.length, o.initial) = (65, initial));
    let message = train_lm(&further, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("shorten the windows") && !message.contains("--max-length"), "{message}");
}

#[test]
fn pairs_do_not_exceed_the_longest_context() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let options = with(workspace.dpo("model", "adapter"), |o| o.run.length = 65);
    let message = train_dpo(&options, None, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("`length` is 65") && message.contains("64") && message.contains("lower --length"), "{message}");
}

/// A folder with a tokenizer counts as finished, so a run that is interrupted must not leave one
/// without its configuration.
#[test]
fn a_tokenizer_is_written_after_its_configuration() {
    let workspace = Workspace::new();
    let output = workspace.root.path().join("half");
    fs::create_dir_all(output.join("tokenizer_config.json")).unwrap();
    let options = TokenizerOptions { data: data(&workspace.texts), vocab_size: 300, max_length: 64, output: output.clone() };
    assert!(train_tokenizer(&options).is_err());
    assert!(!output.join("tokenizer.json").exists());
}

/// Special tokens spelled out in a text are plain text. Truncation and padding in the tokenizer's
/// file are ignored.
#[test]
fn training_text_is_neither_cut_nor_read_as_special_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let mut tokenizer = Encoder::load(&sk_models::assets::embedded().unwrap().backbone()).unwrap().tokenizer().clone();
    let truncation = tokenizers::TruncationParams { max_length: 4, ..Default::default() };
    let padding = tokenizers::PaddingParams { strategy: tokenizers::PaddingStrategy::Fixed(64), ..Default::default() };
    tokenizer.with_truncation(Some(truncation)).unwrap().with_padding(Some(padding));
    tokenizer.save(folder.path().join("tokenizer.json"), false).unwrap();
    let encoder = Encoder::load(folder.path()).unwrap();
    let tokenizer = encoder.tokenizer();
    let special = [END_OF_TEXT, "<|im_start|>", END_OF_TURN].map(|token| tokenizer.token_to_id(token).unwrap());
    let text = "The token <|im_end|> ends a turn, <|endoftext|> a text, and this is neither.";
    let ids = encoder.text(text).unwrap();
    assert!(ids.iter().all(|id| !special.contains(id)), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
}

/// The pattern of a tokenizer goes back through white space that no line end follows.
#[test]
fn white_space_without_end_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let write = |text: &str| {
        let rows = [serde_json::json!({"text": "short"}), serde_json::json!({ "text": text })];
        fs::write(&path, rows.map(|row| row.to_string() + "\n").concat()).unwrap();
    };
    write(&(" ".repeat(12_000_000) + "a"));
    let message = read_rows(&path).unwrap_err().to_string();
    assert!(message.contains("rows.jsonl:2") && message.contains("white space"), "{message}");
    write(&"a b ".repeat(3_000_000));
    assert_eq!(read_rows(&path).unwrap().len(), 2);
}

/// A model trained with another kind of tokenizer could not be loaded.
#[test]
fn a_tokenizer_that_models_are_not_read_with_is_refused_before_training() {
    let workspace = Workspace::new();
    let folder = workspace.root.path().join("tokenizer");
    let file = folder.join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    tokenizer["normalizer"] = serde_json::json!({"type": "Lowercase"});
    fs::write(&file, tokenizer.to_string()).unwrap();
    let message = Encoder::load(&folder).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json") && message.contains("Lowercase"), "{message}");
}

#[test]
fn the_tokenizer_gives_back_every_text() {
    let workspace = Workspace::new();
    let encoder = Encoder::load(&workspace.root.path().join("tokenizer")).unwrap();
    let tokenizer = encoder.tokenizer();
    for text in
        ["", " ", "\n\nHuman: How?\n\nAssistant: So.", "naïve café – 42 €", "日本語 🦀", "a\tb\r\n  c", "don't I'LL we've"]
    {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(ids.get_ids(), false).unwrap(), text);
    }
    let size = tokenizer.get_vocab_size(true) as u32;
    let special = [END_OF_TEXT, "<|im_start|>", END_OF_TURN].map(|token| tokenizer.token_to_id(token).unwrap());
    assert_eq!(special, [size - 3, size - 2, size - 1]);
}

#[test]
fn every_assistant_turn_and_every_document_is_closed() {
    let workspace = Workspace::new();
    let encoder = Encoder::load(&workspace.root.path().join("tokenizer")).unwrap();
    let dialogue = "\n\nHuman: One?\n\nAssistant: Two.\n\nHuman: Three?\n\nAssistant: Four.";
    let ids = encoder.document(dialogue).unwrap();
    assert_eq!(
        encoder.tokenizer().decode(&ids, false).unwrap(),
        "\n\nHuman: One?\n\nAssistant: Two.<|im_end|>\n\nHuman: Three?\n\nAssistant: Four.<|im_end|><|endoftext|>"
    );
    let prompt = &dialogue[..dialogue.len() - " Four.".len()];
    let ids = encoder.prompt(prompt).unwrap();
    assert_eq!(
        encoder.tokenizer().decode(&ids, false).unwrap(),
        "\n\nHuman: One?\n\nAssistant: Two.<|im_end|>\n\nHuman: Three?\n\nAssistant:"
    );
}

#[test]
fn the_split_is_disjoint_and_goes_by_prompt() {
    let workspace = Workspace::new();
    let rows = read_rows(&workspace.pairs).unwrap();
    let held = rows.iter().filter(|row| row.is_held_out(0.2)).count();
    assert!((6..=22).contains(&held), "{held} of {}", rows.len());
    for row in &rows {
        let Row::Pair { prompt, .. } = row else { panic!("a pair") };
        let bare = prompt.trim_start_matches("\n\nHuman: ").trim_end_matches("\n\nAssistant:");
        let exchange = Row::Exchange { prompt: bare.to_owned(), response: "Anything.".into() };
        assert_eq!(row.is_held_out(0.2), exchange.is_held_out(0.2));
        // A larger fraction holds out every row that a smaller one does.
        assert!(!row.is_held_out(0.1) || row.is_held_out(0.2));
    }
    let excluded = Excluded::load(std::slice::from_ref(&workspace.pairs)).unwrap();
    assert!(rows.iter().all(|row| excluded.contains(row)));
}

#[test]
fn the_turns_of_a_dialogue_stay_on_one_side() {
    for opening in ["One?", "Who is it?", "What is a tide?", "Why?"] {
        let sides: Vec<bool> = [
            Row::Exchange { prompt: opening.into(), response: "This.".into() },
            Row::Text(format!("{} This.{HUMAN} And then?{ASSISTANT} That.", frame(opening))),
            Row::Pair {
                prompt: format!("{} This.{HUMAN} And then?{ASSISTANT}", frame(opening)),
                chosen: " That.".into(),
                rejected: " No.".into(),
            },
        ]
        .iter()
        .map(|row| row.is_held_out(0.5))
        .collect();
        assert!(sides.iter().all(|&side| side == sides[0]), "{opening}: {sides:?}");
    }
}

#[test]
fn a_question_is_excluded_in_any_turn() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("questions.csv");
    fs::write(&table, "\u{feff}Type,Question\nx,\"Who is it, really?\"\n").unwrap();
    let dialogues = folder.path().join("dialogues.jsonl");
    let later = "Tell me about the tides of the sea, please.";
    let line = serde_json::json!({ "text": format!("{} Hello.{HUMAN} Yes, please.{ASSISTANT} What?{HUMAN} {later}{ASSISTANT} So.", frame("Good day")) });
    fs::write(&dialogues, format!("{line}\n")).unwrap();
    let prompts = folder.path().join("prompts.jsonl");
    fs::write(&prompts, "{\"id\": \"a\", \"prompt\": \"Is it far?\"}\n").unwrap();
    let excluded = Excluded::load(&[table, dialogues, prompts]).unwrap();

    let asks = |turn: &str| {
        let whole = Row::Exchange { prompt: turn.into(), response: "So.".into() };
        let second = Row::Text(format!("{} What?{HUMAN} {turn}{ASSISTANT} So.", frame("Something else")));
        (excluded.contains(&whole), excluded.contains(&second))
    };
    assert_eq!(asks("who is it  REALLY"), (true, true));
    assert_eq!(asks("Good day!"), (true, true));
    assert_eq!(asks("Is it far?"), (true, true));
    assert_eq!(asks(later), (true, true));
    assert_eq!(asks("Yes, please."), (false, false), "too short for a question of its own");
    assert_eq!(asks("Who was it, really?"), (false, false));
    assert!(!excluded.contains(&Row::Text("Who is it, really?".into())), "plain text asks nobody");
    assert!(!Excluded::default().contains(&Row::Text(frame("Good day"))));
}

/// Such a row would protect nothing.
#[test]
fn an_excluded_row_without_a_question_is_refused() {
    let load = |line: serde_json::Value| {
        let (_folder, path) = rows_file("rows.jsonl", format!("{{\"prompt\": \"A?\"}}\n{line}\n"));
        Excluded::load(&[path])
    };
    let message = |role: &str| serde_json::json!({"role": role, "content": "How do I open the door?"});
    for line in [
        serde_json::json!({"text": "How do I open the door?"}),
        serde_json::json!({"messages": []}),
        serde_json::json!({"messages": [message("assistant")]}),
        serde_json::json!({"chosen": "How?\n\nAssistant: a", "rejected": "How?\n\nAssistant: b"}),
    ] {
        let message = load(line).unwrap_err().to_string();
        assert!(message.contains("rows.jsonl:2: has no question: expected `prompt`, or a dialogue"), "{message}");
    }
    // A question needs no answer.
    let asked = Row::Exchange { prompt: "How do I open the door?".into(), response: "So.".into() };
    for line in [
        serde_json::json!({"prompt": "How do I open the door?"}),
        serde_json::json!({"text": "\n\nHuman: How do I open the door?"}),
        serde_json::json!({"messages": [message("user")]}),
        serde_json::json!({"prompt": "How do I open the door?", "chosen": "So.", "rejected": "So."}),
        // The prompt is a later question than those of the dialogue.
        serde_json::json!({"prompt": "B?", "chosen": "\n\nHuman: How do I open the door?\n\nAssistant: So.",
            "rejected": "\n\nHuman: How do I open the door?\n\nAssistant: No."}),
        // These dialogues differ before their last answers.
        serde_json::json!({"chosen": "\n\nHuman: How do I open the door?\n\nAssistant: So.",
            "rejected": "\n\nHuman: How do I open the door?\n\nAssistant: No.\n\nHuman: B?\n\nAssistant: C."}),
    ] {
        assert!(load(line.clone()).unwrap().contains(&asked), "{line}");
    }
}

#[test]
fn a_table_without_questions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.csv");
    fs::write(&table, "a,b\n1,2\n").unwrap();
    let error = Excluded::load(std::slice::from_ref(&table)).unwrap_err().to_string();
    assert!(error.contains("table.csv") && error.contains("column `prompt` or `question`"), "{error}");
}

#[test]
fn windows_resume_at_a_cursor() {
    let workspace = Workspace::new();
    let encoder = Encoder::load(&workspace.root.path().join("tokenizer")).unwrap();
    let weighted = Source { path: workspace.texts.clone(), weight: 1.5 };
    let data = DataOptions { sources: vec![weighted], exclude: Vec::new(), held_out: 0.2 };
    let corpus = Corpus::load(&data, &encoder).unwrap();
    let mut windows = Windows::new(&corpus, 5, 40, Cursor::default()).unwrap();
    let seen: Vec<_> = (0..200).map(|_| (windows.cursor(), windows.next_window())).collect();
    assert!(seen.last().unwrap().0.epoch >= 2);
    for (cursor, window) in seen.iter().step_by(17) {
        assert_eq!(Windows::new(&corpus, 5, 40, *cursor).unwrap().next_window(), *window);
    }
}

#[test]
fn dialogue_pairs_are_cut_at_the_last_assistant_turn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hh.jsonl");
    let rows = [
        serde_json::json!({"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "\n\nHuman: A?\n\nAssistant: c"}),
        serde_json::json!({"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "\n\nHuman: Z?\n\nAssistant: c"}),
        serde_json::json!({"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "\n\nHuman: A?\n\nAssistant: b"}),
    ];
    fs::write(&path, rows.map(|row| row.to_string()).join("\n")).unwrap();
    let expected = Row::Pair { prompt: "\n\nHuman: A?\n\nAssistant:".into(), chosen: " b".into(), rejected: " c".into() };
    // Pairs with different prompts or with equal answers carry no preference and are skipped.
    assert_eq!(read_rows(&path).unwrap(), [expected]);

    fs::write(&path, "{\"text\": \"fine\"}\n{\"prompt\": \"alone\"}\n").unwrap();
    let message = read_rows(&path).unwrap_err().to_string();
    assert!(message.contains("hh.jsonl:2: "), "{message}");
    // A pair that lacks a side or a turn of the assistant is an error, not a pair without a
    // preference.
    for (line, part) in [
        (r#"{"rejected": "x"}"#, "`chosen` with `rejected`"),
        (r#"{"chosen": null, "rejected": "\n\nHuman: A?\n\nAssistant: c"}"#, "`chosen` with `rejected`"),
        (r#"{"chosen": "b", "rejected": "\n\nHuman: A?\n\nAssistant: c"}"#, "`chosen` has no"),
        (r#"{"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "c"}"#, "`rejected` has no"),
    ] {
        fs::write(&path, format!("{{\"text\": \"fine\"}}\n{line}\n")).unwrap();
        let message = read_rows(&path).unwrap_err().to_string();
        assert!(message.contains("hh.jsonl:2: ") && message.contains(part) && !message.contains('\n'), "{message}");
    }
}

/// A file of rows in a folder of its own.
fn rows_file(name: &str, contents: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, contents).unwrap();
    (folder, path)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[test]
fn all_members_of_a_gzip_file_are_read() {
    let members = [gzip("{\"text\": \"one\"}\n"), gzip("{\"text\": \"two\"}\n{\"text\": \"three\"}\n")];
    let (_folder, path) = rows_file("rows.jsonl.gz", members.concat());
    assert_eq!(read_rows(&path).unwrap(), ["one", "two", "three"].map(|text| Row::Text(text.to_owned())));
}

#[test]
fn a_damaged_gzip_file_is_named_as_such() {
    let whole = gzip(&"{\"text\": \"one\"}\n".repeat(1000));
    for damaged in [&whole[..whole.len() - 12], b"{\"text\": \"one\"}\n"] {
        let (_folder, path) = rows_file("rows.jsonl.gz", damaged);
        let message = read_rows(&path).unwrap_err().to_string();
        assert!(message.contains("rows.jsonl.gz:") && message.contains("not a whole gzip file"), "{message}");
    }
}

#[test]
fn a_framed_prompt_is_not_framed_again() {
    let framed = "\n\nHuman: A?\n\nAssistant:";
    let whole = |answer: &str| format!("{framed}{answer}");
    let lines = [
        serde_json::json!({"prompt": framed, "chosen": " b", "rejected": " c"}),
        serde_json::json!({"prompt": framed.trim(), "chosen": "b", "rejected": "c"}),
        // Ends with the human turn.
        serde_json::json!({"prompt": "Human: A?\n", "chosen": "b", "rejected": "c"}),
        serde_json::json!({"prompt": "A?", "chosen": whole(" b"), "rejected": whole(" c")}),
        serde_json::json!({"prompt": "A?", "chosen": "b", "rejected": "c"}),
    ];
    let (_folder, path) = rows_file("rows.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let expected = Row::Pair { prompt: framed.into(), chosen: " b".into(), rejected: " c".into() };
    assert_eq!(read_rows(&path).unwrap(), vec![expected; 5]);

    let lines = [serde_json::json!({"prompt": framed, "response": "b"}), serde_json::json!({"prompt": "A?", "response": "b"})];
    let (_folder, path) = rows_file("rows.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let rows = read_rows(&path).unwrap();
    assert_eq!(rows[0].document(), rows[1].document());
    assert_eq!(rows[0].key(), rows[1].key());
    let (_folder, path) = rows_file("prompts.jsonl", serde_json::json!({ "prompt": framed }).to_string());
    assert!(Excluded::load(&[path]).unwrap().contains(&rows[1]));
}

#[test]
fn a_dialogue_may_begin_without_an_empty_line() {
    let text = |answer: &str| format!("Human: A?\n\nAssistant: b\n\nHuman: C?\n\nAssistant: {answer}");
    let lines = [
        serde_json::json!({"text": text("d")}),
        serde_json::json!({"messages": format!("\n{}", text("d"))}),
        serde_json::json!({"chosen": text("d"), "rejected": text("e")}),
        // An answer may be a dialogue.
        serde_json::json!({"prompt": "A?", "chosen": "Human: B.\n\nAssistant: C.", "rejected": "No."}),
    ];
    let (_folder, path) = rows_file("rows.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let rows = read_rows(&path).unwrap();
    let prompt = "\n\nHuman: A?\n\nAssistant: b\n\nHuman: C?\n\nAssistant:";
    let pair = Row::Pair { prompt: prompt.into(), chosen: " d".into(), rejected: " e".into() };
    let dialogue = Row::Text(format!("{prompt} d"));
    let (prompt, chosen) = ("\n\nHuman: A?\n\nAssistant:".into(), " Human: B.\n\nAssistant: C.".into());
    let answered = Row::Pair { prompt, chosen, rejected: " No.".into() };
    assert_eq!(rows, [dialogue.clone(), dialogue, pair, answered]);
    assert!(rows.iter().all(|row| row.key() == "A?"), "{rows:?}");
    let asked = Row::Exchange { prompt: "A?".into(), response: "So.".into() };
    assert!(Excluded::load(&[path]).unwrap().contains(&asked));
    // Plain texts stay as they are.
    let texts = ["Human: a short history\n\nChapter 1", " The sun.\n\nHuman: a word"];
    let lines = texts.map(|text| serde_json::json!({ "text": text }).to_string() + "\n");
    let (_folder, path) = rows_file("rows.jsonl", lines.concat());
    assert_eq!(read_rows(&path).unwrap(), texts.map(|text| Row::Text(text.into())));
}

/// Answers without framing may run on into another turn.
#[test]
fn pairs_are_read_as_they_are_written() {
    let untrimmed = |answer: &str| format!(" Be brief.\n\nHuman: A?\n\nAssistant: {answer}");
    let lines = [
        serde_json::json!({"prompt": "A?", "chosen": "b\n\nHuman: C?\n\nAssistant: d", "rejected": "e"}),
        serde_json::json!({"prompt": "A?", "chosen": "b", "rejected": "b\n\nHuman: C?"}),
        serde_json::json!({"prompt": "A?", "chosen": "Human: b\n\nHuman: C?", "rejected": "e"}),
        serde_json::json!({"prompt": "Be brief.\n\nHuman: A?\n\nAssistant:", "chosen": "b", "rejected": "e"}),
        // The framing would trim the prompt.
        serde_json::json!({"chosen": untrimmed("b"), "rejected": untrimmed("e")}),
    ];
    let (folder, path) = rows_file("rows.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let rows = read_rows(&path).unwrap();
    let written = folder.path().join("written.jsonl");
    assert_eq!(write_rows(&written, rows.clone()).unwrap(), 5);
    assert_eq!(read_rows(&written).unwrap(), rows);
}

/// The forms of TRL: a preference with or without its prompt apart, and a dialogue.
#[test]
fn lists_of_messages_are_framed() {
    let message = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
    let (system, user) = (message("system", "Be brief."), message("user", "A?"));
    let answer = |text: &str| message("assistant", text);
    let lines = [
        serde_json::json!({"prompt": [system, user], "chosen": [answer("b")], "rejected": [answer("c")]}),
        serde_json::json!({"chosen": [system, user, answer("b")], "rejected": [system, user, answer("c")]}),
        // Beside the dialogues, the prompt is superfluous.
        serde_json::json!({"prompt": "A?", "chosen": [system, user, answer("b")], "rejected": [system, user, answer("c")]}),
        serde_json::json!({"messages": [user, answer("b"), message("user", "D?"), answer("e")]}),
        serde_json::json!({"prompt": [user], "response": [answer("b")], "messages": [{"role": "tool"}]}),
        serde_json::json!({"chosen": [answer("Hm."), user, answer("b")], "rejected": [answer("Hm."), user, answer("c"), user]}),
        serde_json::json!({"prompt": [answer("Hm."), user], "chosen": "b", "rejected": [answer("c")]}),
    ];
    let (_folder, path) = rows_file("rows.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let rows = read_rows(&path).unwrap();
    let prompt = "Be brief.\n\nHuman: A?\n\nAssistant:";
    let pair = Row::Pair { prompt: prompt.into(), chosen: " b".into(), rejected: " c".into() };
    assert_eq!(rows[..3], vec![pair; 3]);
    assert_eq!(rows[0].key(), "A?");
    assert_eq!(rows[3], Row::Text("\n\nHuman: A?\n\nAssistant: b\n\nHuman: D?\n\nAssistant: e".into()));
    assert_eq!(rows[4].document(), "\n\nHuman: A?\n\nAssistant: b");
    let prompt = "\n\nAssistant: Hm.\n\nHuman: A?\n\nAssistant:";
    let pair = Row::Pair { prompt: prompt.into(), chosen: " b".into(), rejected: " c".into() };
    assert_eq!(rows[5..], vec![pair; 2]);
    // A system message begins no turn.
    let system = message("system", "Human: be nice");
    let lines = [
        serde_json::json!({"prompt": [system, user], "chosen": [answer("b")], "rejected": [answer("c")]}),
        serde_json::json!({"chosen": [system, user, answer("b")], "rejected": [system, user, answer("c")]}),
    ];
    let (_folder, path) = rows_file("system.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let rows = read_rows(&path).unwrap();
    assert!(rows[0] == rows[1] && rows[0].key() == "A?", "{rows:?}");
    for (row, part) in [
        (
            serde_json::json!({"chosen": [answer("b")], "rejected": [answer("c")]}),
            "`chosen`: expected a message of the user, and",
        ),
        (
            serde_json::json!({"prompt": [user, answer("b"), system, user], "chosen": "b", "rejected": "c"}),
            "`prompt`: has a system message after the first message",
        ),
        (
            serde_json::json!({"messages": [message("user", "Log:\n\nHuman: hi"), answer("b")]}),
            "`messages`: has a message with \"\\n\\nHuman:\"",
        ),
        (serde_json::json!({"chosen": [user], "rejected": [user]}), "`chosen`: expected a message of the user, and"),
        (serde_json::json!({"messages": []}), "rows.jsonl:1: `messages`: has no turn of the assistant"),
        (serde_json::json!({"messages": [system, user]}), "`messages`: has no turn of the assistant"),
        (serde_json::json!({"text": "\n\nHuman: A?"}), "`text`: has no turn of the assistant"),
        (serde_json::json!({"prompt": [], "chosen": "b", "rejected": "c"}), "`prompt`: the last message is not the user's"),
        (
            serde_json::json!({"prompt": [user], "chosen": [answer("b"), user, answer("d")], "rejected": "c"}),
            "`chosen`: expected one message of the assistant; for a whole dialogue, leave out `prompt`",
        ),
    ] {
        let (_folder, path) = rows_file("rows.jsonl", row.to_string());
        let message = read_rows(&path).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_row_with_two_answers_is_a_pair_whatever_else_it_has() {
    let pair = serde_json::json!({"prompt": "A?", "chosen": "b", "rejected": "c", "response": ["d"], "text": 5});
    let (_folder, path) = rows_file("rows.jsonl", pair.to_string());
    assert!(matches!(&read_rows(&path).unwrap()[..], [Row::Pair { .. }]));
}

#[test]
fn a_human_turn_after_the_last_answer_is_left_out() {
    let side = |answer: &str| format!("\n\nHuman: A?\n\nAssistant: {answer}\n\nHuman: thanks");
    let pair = serde_json::json!({"chosen": side("b"), "rejected": side("c")});
    let (_folder, path) = rows_file("rows.jsonl", pair.to_string());
    let expected = Row::Pair { prompt: "\n\nHuman: A?\n\nAssistant:".into(), chosen: " b".into(), rejected: " c".into() };
    assert_eq!(read_rows(&path).unwrap(), [expected]);
}

#[test]
fn a_byte_order_mark_before_the_rows_is_skipped() {
    let (_folder, path) = rows_file("rows.jsonl", "\u{feff}{\"text\": \"one\"}\n");
    assert_eq!(read_rows(&path).unwrap(), [Row::Text("one".into())]);
}

#[test]
fn a_line_that_is_no_object_of_texts_is_refused_with_its_field() {
    for (line, parts) in [
        ("{\"text\": 3}", &["`text`", "found 3, expected text or a list of messages"][..]),
        ("{\"messages\": [{\"role\": \"tool\", \"content\": \"A?\"}]}", &["`messages`", "unknown variant `tool`", "`user`"]),
        ("{\"messages\": [{\"role\": \"user\"}]}", &["`messages`", "missing field `content`"]),
        ("[\"some text\", null, null, null, null]", &["expected one JSON object per line"]),
        ("[", &["expected one JSON object per line"]),
        ("{", &["expected one JSON object per line"]),
    ] {
        let (_folder, path) = rows_file("rows.jsonl", format!("{{\"text\": \"fine\"}}\n{line}\n"));
        let message = read_rows(&path).unwrap_err().to_string();
        assert!(message.contains("rows.jsonl:2: ") && parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn an_error_for_lack_of_pairs_counts_the_rows_by_their_faults() {
    let workspace = Workspace::new();
    let rows = [("b", "b"), ("b", "b"), ("", "b"), ("b", "c")]
        .map(|(chosen, rejected)| serde_json::json!({"prompt": "A?", "chosen": chosen, "rejected": rejected}).to_string() + "\n");
    fs::write(&workspace.pairs, rows.concat()).unwrap();
    let says = |held_out: f64| {
        let mut options = workspace.dpo("tokenizer", "none");
        options.data.held_out = held_out;
        unseen_pairs(&options).unwrap_err().to_string()
    };
    let (all, none) = (says(1.0 - f64::EPSILON), says(f64::MIN_POSITIVE));
    for (message, parts) in [(&all, ["no pairs to train on", "1 held out"]), (&none, ["no held-out pairs", "1 to train on"])] {
        let parts = parts.into_iter().chain(["pairs.jsonl: 4 rows", "2 with equal answers", "1 with an empty answer"]);
        parts.for_each(|part| assert!(message.contains(part), "{part}: {message}"));
    }
}

#[test]
fn pairs_are_repeated_a_whole_number_of_times() {
    let workspace = Workspace::new();
    let unseen = |weight| {
        let mut options = workspace.dpo("tokenizer", "none");
        options.data.sources[0].weight = weight;
        unseen_pairs(&options)
    };
    for weight in [0.2, 1.4] {
        let message = unseen(weight).unwrap_err().to_string();
        let parts = [format!("pairs.jsonl={weight}"), "whole number".to_owned()];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    assert!(unseen(3.0).is_ok());
}

#[test]
fn a_row_that_is_no_pair_is_refused_with_its_line() {
    let workspace = Workspace::new();
    fs::write(&workspace.pairs, "\n{\"text\": \"no pair\"}\n").unwrap();
    let options = workspace.dpo("tokenizer", "none");
    let message = unseen_pairs(&options).unwrap_err().to_string();
    assert!(message.contains("pairs.jsonl:2: ") && message.contains("`chosen` with `rejected`"), "{message}");
}
