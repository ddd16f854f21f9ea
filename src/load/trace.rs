//! Files of requests with the moments they came: what a trace replays.
//!
//! It must not know how a sweep replays them. Invariants: arrivals are in the order of time and the first is at 0;
//! what is left out is counted.

use std::path::Path;

use super::plan::Arrival;
use super::table::{Row, Table};

/// What a file looks like.
pub const FORM: &str =
    "JSON lines with timestamp (ms), input_length, output_length; or CSV with a header timestamp,prompt,output (s)";

/// The requests of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// In the order of time.
    pub arrivals: Vec<Arrival>,
    /// Rows of requests without a prompt or an output, which were left out: requests that failed when the trace was
    /// taken.
    pub left_out: usize,
}

/// Reads a trace.
///
/// # Errors
/// What is wrong with it: what, where, what is expected.
pub fn read(path: &Path) -> Result<Trace, String> {
    let table = Table::read(path)?;
    of_rows(&table.rows).map_err(|why| format!("{}, {why}", table.name))
}

fn of_rows(rows: &[Row]) -> Result<Trace, String> {
    let mut arrivals = Vec::with_capacity(rows.len());
    for row in rows {
        let lacks = |what: &str| format!("line {}: no {what} is in it; expected are {FORM}", row.line);
        let at_s = row.at_s.ok_or_else(|| lacks("time"))?;
        let prompt = row.prompt.ok_or_else(|| lacks("length of the prompt"))?;
        let output = row.output.ok_or_else(|| lacks("length of the output"))?;
        if prompt > 0 && output > 0 {
            arrivals.push(Arrival { at_s, prompt, output });
        }
    }
    arrivals.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let first = arrivals.first().ok_or("line 1: no request with a prompt and an output is in it")?.at_s;
    for arrival in &mut arrivals {
        arrival.at_s -= first;
    }
    Ok(Trace { left_out: rows.len() - arrivals.len(), arrivals })
}

#[cfg(test)]
mod tests {
    use super::super::table::rows;
    use super::*;

    fn trace(text: &str) -> Result<Trace, String> {
        of_rows(&rows(text)?)
    }

    #[test]
    fn each_of_the_known_traces_is_read() {
        let mooncake = "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47]}\n\
                        {\"timestamp\": 30535, \"input_length\": 6472, \"output_length\": 26, \"hash_ids\": [46]}";
        let burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                     27.482,ChatGPT,6955,52,7007,Conversation log\n30.535,GPT-4,6472,26,6498,API log";
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.4820000,6955,52\n\
                     2023-11-16 18:15:49.5350000,6472,26";
        let vidur = "arrived_at,num_prefill_tokens,num_decode_tokens\n27.482,6955,52\n30.535,6472,26";
        for text in [mooncake, burst, azure, vidur] {
            let Trace { arrivals, left_out } = trace(text).unwrap();
            let lengths: Vec<_> = arrivals.iter().map(|a| (a.prompt, a.output)).collect();
            assert_eq!((lengths, left_out), (vec![(6955, 52), (6472, 26)], 0), "{text}");
            assert!(arrivals[0].at_s == 0.0 && (arrivals[1].at_s - 3.053).abs() < 1e-5, "{arrivals:?}");
        }
    }

    #[test]
    fn arrivals_are_sorted_and_failed_requests_are_counted() {
        let trace = trace("at_ms,prompt,output\n900,1,1\n100,2,2\n50,3,0\n400,4,4").unwrap();
        let all: Vec<_> = trace.arrivals.iter().map(|a| ((a.at_s * 1e3).round(), a.prompt)).collect();
        assert_eq!((all, trace.left_out), (vec![(0.0, 2), (300.0, 4), (800.0, 1)], 1));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            ("5\n6", "line 1: no time is in it; expected are JSON lines"),
            ("timestamp,prompt\n1,2", "line 2: no length of the output"),
            ("timestamp,output\n1,2", "line 2: no length of the prompt"),
            ("{\"timestamp\":1,\"input_length\":1,\"output_length\":1}\n{\"input_length\":1}", "line 2: no time"),
            ("timestamp,prompt,output\n1,2,0", "line 1: no request with"),
            ("timestamp,prompt,output\nsoon,2,1", "line 2: \"soon\" is no time"),
        ];
        for (text, why) in cases {
            let error = trace(text).unwrap_err();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_is_named_in_its_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "timestamp,prompt,output\n1,2,3\n").unwrap();
        assert_eq!(read(&path).unwrap().arrivals, [Arrival { at_s: 0.0, prompt: 2, output: 3 }]);
        std::fs::write(&path, "timestamp,prompt\n1,2\n").unwrap();
        assert!(read(&path).unwrap_err().contains("a.csv, line 2: no length of the output"));
    }
}
