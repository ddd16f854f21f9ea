//! Rows of a file that holds requests: CSV with or without a header, or an object of JSON a line.
//!
//! It must not know what the rows are for. Invariants: a file is bounded, and so is the number of its rows; every error
//! names file and line, what is there and what is expected; a column is known by its name, whoever wrote the file
//! (Mooncake, BurstGPT, Azure, Vidur), and its unit of time too.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use crate::model::text::clean;

use super::lengths::MOST_TOKENS;

/// Longest file that is read, bytes.
const MAX_FILE: u64 = 256 << 20;
/// Most rows.
const MAX_ROWS: usize = 1_000_000;
/// Names of the column that holds when a request came, without their unit.
const AT: [&str; 6] = ["timestamp", "arrival", "arrival_time", "arrived_at", "at", "time"];
/// Names of the column that holds tokens of prompts.
const PROMPT: [&str; 9] = [
    "prompt",
    "input_length",
    "request_tokens",
    "contexttokens",
    "num_prefill_tokens",
    "prompt_tokens",
    "prompt_length",
    "input_tokens",
    "context_tokens",
];
/// Names of the column that holds tokens of outputs.
const OUTPUT: [&str; 8] = [
    "output",
    "output_length",
    "response_tokens",
    "generatedtokens",
    "num_decode_tokens",
    "output_tokens",
    "completion_tokens",
    "generated_tokens",
];

/// A row: what of it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Its line, from 1.
    pub(super) line: usize,
    /// When the request came, s since some moment.
    pub(super) at_s: Option<f64>,
    /// Tokens of its prompt; 0 may stand there.
    pub(super) prompt: Option<u32>,
    /// Tokens of its output; 0 may stand there.
    pub(super) output: Option<u32>,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    /// When the request came, in units of so many seconds.
    At(f64),
    Prompt,
    Output,
    /// Both lengths, of a file of one column.
    Either,
}

/// A file with its rows, and what it is called in messages.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it: what, where, what is expected.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = clean(&path.display().to_string());
        let text = text_of(path).map_err(|why| format!("{name}: {why}"))?;
        let rows = rows(&text).map_err(|why| format!("{name}, {why}"))?;
        if rows.is_empty() {
            return Err(format!("{name}: it holds no rows: give a file with a request a line"));
        }
        Ok(Self { name, rows })
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let unread = |error: std::io::Error| format!("it cannot be read ({error}): check its path and mode");
    // A pipe without a writer would be waited for without end.
    if !path.metadata().map_err(unread)?.is_file() {
        return Err("it is no regular file: give the path of one".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(unread)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("it is longer than {} MiB: take a part of it", MAX_FILE >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8: give CSV or JSON lines".to_owned())
}

/// The rows of a text; errors begin with the line.
pub(super) fn rows(text: &str) -> Result<Vec<Row>, String> {
    rows_to(MAX_ROWS, text)
}

fn rows_to(most: usize, text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut columns: Option<Vec<Option<Column>>> = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |why: String| format!("line {}: {why}", i + 1);
        let row = if line.starts_with('{') {
            Some(of_json(line).map_err(at)?)
        } else if let Some(columns) = &columns {
            Some(of_fields(&fields(line), columns).map_err(at)?)
        } else {
            let (found, is_header) = head(&fields(line)).map_err(at)?;
            let row = if is_header { None } else { Some(of_fields(&fields(line), &found).map_err(at)?) };
            columns = Some(found);
            row
        };
        let Some(row) = row else { continue };
        if rows.len() == most {
            return Err(at(format!("it has more than {most} rows: take a part of it")));
        }
        rows.push(Row { line: i + 1, ..row });
    }
    Ok(rows)
}

/// The fields of a line: between commas, or where there are none between white space. Quotes keep commas.
fn fields(line: &str) -> Vec<String> {
    if !line.contains(',') {
        return line.split_whitespace().map(|field| field.trim_matches('"').to_owned()).collect();
    }
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    all.push(field);
    all.iter().map(|field| field.trim().to_owned()).collect()
}

/// What the columns are by the first line, and whether that is a header.
fn head(first: &[String]) -> Result<(Vec<Option<Column>>, bool), String> {
    if first.iter().all(|field| field.parse::<f64>().is_ok()) {
        return match first.len() {
            1 => Ok((vec![Some(Column::Either)], false)),
            2 => Ok((vec![Some(Column::Prompt), Some(Column::Output)], false)),
            n => Err(format!(
                "{n} numbers and no header that says what they are: begin with one, as in \"timestamp,prompt,output\""
            )),
        };
    }
    let columns: Vec<_> = first.iter().map(|name| column(name, 1.0)).collect();
    if columns.iter().all(Option::is_none) {
        return Err(format!(
            "no column is known by its name ({}): rename them, as in \"timestamp,prompt,output\"",
            clean(&first.join(", "))
        ));
    }
    Ok((columns, true))
}

/// What a column of this name holds. Time is in units of `unit` seconds where the name does not say it.
fn column(name: &str, unit: f64) -> Option<Column> {
    let name = name.trim().to_lowercase().replace([' ', '-'], "_");
    if PROMPT.contains(&name.as_str()) {
        return Some(Column::Prompt);
    }
    if OUTPUT.contains(&name.as_str()) {
        return Some(Column::Output);
    }
    let is_at = |name: &str| AT.contains(&name.trim_end_matches('_'));
    let of = [(name.strip_suffix("ms"), 1e-3), (name.strip_suffix("_s"), 1.0), (Some(name.as_str()), unit)];
    of.into_iter().find(|(name, _)| name.is_some_and(is_at)).map(|(_, unit)| Column::At(unit))
}

fn of_fields(fields: &[String], columns: &[Option<Column>]) -> Result<Row, String> {
    if fields.len() != columns.len() {
        return Err(format!("{} fields where {} are expected", fields.len(), columns.len()));
    }
    let mut row = Row::default();
    for (field, column) in fields.iter().zip(columns) {
        if let Some(column) = column {
            put(&mut row, *column, field)?;
        }
    }
    Ok(row)
}

/// A line of JSON: a time without a unit in its name is in ms, as Mooncake's traces have it.
fn of_json(line: &str) -> Result<Row, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|_| "an object of JSON is expected, whole on its line".to_owned())?;
    let mut row = Row::default();
    for (name, value) in &object {
        let Some(column) = column(name, 1e-3) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        put(&mut row, column, &text)?;
    }
    Ok(row)
}

fn put(row: &mut Row, column: Column, text: &str) -> Result<(), String> {
    match column {
        Column::At(unit) => {
            let at = text.parse().ok().map(|at: f64| at * unit).or_else(|| moment(text)).filter(|at| at.is_finite());
            let wrong = || {
                format!("\"{}\" is no time: a number is expected, or a date as in 2023-11-16 18:15:46.68", clean(text))
            };
            row.at_s = Some(at.ok_or_else(wrong)?);
        }
        Column::Prompt => row.prompt = Some(tokens(text)?),
        Column::Output => row.output = Some(tokens(text)?),
        Column::Either => (row.prompt, row.output) = (Some(tokens(text)?), Some(tokens(text)?)),
    }
    Ok(())
}

/// A number of tokens, as some write it: 512 or 512.0.
fn tokens(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n: &f64| n.fract() == 0.0 && (0.0..=f64::from(MOST_TOKENS)).contains(n));
    let wrong = || format!("\"{}\" is no length: whole tokens up to {MOST_TOKENS} are expected", clean(text));
    number.map(|n| n as u32).ok_or_else(wrong)
}

/// A date and time as s since the Unix epoch: `2023-11-16 18:15:46.6805900`, with or without `Z` or `+00:00`.
fn moment(text: &str) -> Option<f64> {
    let (date, time) = text.split_once(['T', ' '])?;
    let (time, offset_s) = without_zone(time)?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hour, minute): (i64, i64) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let second: f64 = time.next()?.parse().ok()?;
    let is_date = (1..=9_999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..61.0).contains(&second);
    let minutes = (days(year, month, day) * 24 + hour) * 60 + minute;
    (is_date && is_time).then(|| (minutes * 60 - offset_s) as f64 + second)
}

/// The time without its zone, and the zone's offset, s.
fn without_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(i) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (time, zone) = time.split_at(i);
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let offset_s = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
    Some((time, if zone.starts_with('-') { -offset_s } else { offset_s }))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar: years are counted from March on, so that the day that
/// comes every four years is the last of one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let years = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    years * 365 + years / 4 - years / 100 + years / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_moments_that_date_prints() {
        // `date -u -d '…' +%s`
        let cases = [
            ("1970-01-01 00:00:00", 0.0),
            ("2000-02-29 12:00:00.5", 951_825_600.5),
            ("2023-11-16 18:15:46.6805900", 1_700_158_546.680_59),
            ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200.009_93),
            ("2024-05-10T02:00:00+02:00", 1_715_299_200.0),
            ("2024-03-01T00:00:00Z", 1_709_251_200.0),
            ("2023-12-31 23:59:59", 1_704_067_199.0),
        ];
        for (text, at) in cases {
            assert!((moment(text).unwrap() - at).abs() < 1e-6, "{text}: {:?}", moment(text));
        }
        for text in ["", "2023-11-16", "2023-13-01 00:00:00", "2023-11-16 24:00:00", "18:15:46", "2023-11-16 18:15"] {
            assert_eq!(moment(text), None, "{text}");
        }
    }

    #[test]
    fn a_column_is_known_by_its_name_and_so_is_its_unit() {
        let cases = [
            ("Timestamp", Some(Column::At(1.0))),
            ("TIMESTAMP", Some(Column::At(1.0))),
            ("timestamp_ms", Some(Column::At(1e-3))),
            ("at_s", Some(Column::At(1.0))),
            ("arrived_at", Some(Column::At(1.0))),
            ("Request tokens", Some(Column::Prompt)),
            ("ContextTokens", Some(Column::Prompt)),
            ("GeneratedTokens", Some(Column::Output)),
            ("num_decode_tokens", Some(Column::Output)),
            ("Total tokens", None),
            ("items", None),
        ];
        for (name, what) in cases {
            assert_eq!(column(name, 1.0), what, "{name}");
        }
        assert_eq!(column("timestamp", 1e-3), Some(Column::At(1e-3)));
    }

    #[test]
    fn rows_without_a_header_are_lengths() {
        let row = |line, prompt, output| Row { line, at_s: None, prompt: Some(prompt), output: Some(output) };
        assert_eq!(rows("# a\n12\n\n7.0\n"), Ok(vec![row(2, 12, 12), row(4, 7, 7)]));
        assert_eq!(rows("12 3\n7\t4"), Ok(vec![row(1, 12, 3), row(2, 7, 4)]));
        assert_eq!(rows("12,3"), Ok(vec![row(1, 12, 3)]));
        assert_eq!(rows("\u{feff}\"prompt\",other,output\r\n5,\"a, b\",6\r\n"), Ok(vec![row(2, 5, 6)]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            ("1 2 3", "line 1: 3 numbers and no header"),
            ("a,b\n1,2", "line 1: no column is known by its name (a, b)"),
            ("prompt,output\n1,2\n1", "line 3: 1 fields where 2 are expected"),
            ("prompt\n\n-1", "line 3: \"-1\" is no length: whole tokens up to 1000000"),
            ("prompt\n1.5", "line 2: \"1.5\" is no length"),
            ("prompt\n1000001", "line 2: \"1000001\" is no length"),
            ("timestamp,prompt\nnan,2", "line 2: \"nan\" is no time"),
            ("{\"timestamp\": 1", "line 1: an object of JSON"),
            ("{\"input_length\": \"x\x1b[31m\"}", "line 1: an object of JSON"),
            ("{\"input_length\": [1]}", "line 1: \"[1]\" is no length"),
        ];
        for (text, why) in cases {
            let error = rows(text).unwrap_err();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
        assert!(rows_to(3, "1\n\n1\n1\n").is_ok());
        assert_eq!(rows_to(3, "1\n\n1\n1\n1\n").unwrap_err(), "line 5: it has more than 3 rows: take a part of it");
    }

    #[test]
    fn a_file_that_is_none_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("empty"), "# nothing\n").unwrap();
        std::fs::write(path("binary"), [0xff, 0xfe]).unwrap();
        let why = |name: &str| Table::read(&path(name)).err().unwrap();
        assert!(why("none").contains("none: it cannot be read ("));
        assert!(why("").contains("it is no regular file"));
        assert!(why("empty").contains("empty: it holds no rows"));
        assert!(why("binary").contains("binary: it is no text in UTF-8"));
    }
}
