//! What vLLM's API server counts itself, under names without a prefix.
//!
//! - Failed requests are at least those that the engine counts (rejected, or ended by an error), and at least
//!   those that the API server answered with 5xx. A rejection is among the latter (503); an error inside a stream,
//!   which began with 200, is not. Which is why the greater one counts. 4xx are mistakes of clients.
//! - The API server's own time of a request (`http_request_duration_seconds`) begins before and ends after that of the
//!   engine's histograms: it has parsing, waiting for the server's loop and writing the answer in it.

use crate::engine::promtext::Sample;
use crate::engine::table::greater;
use crate::model::{Batch, Metric, Subject};

/// The paths under which the API server generates text: OpenAI's and Anthropic's.
const GENERATE: [&str; 4] = ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"];

/// Sums over the API server's series.
#[derive(Default)]
pub(super) struct ApiServer {
    /// Requests that it could not serve; `None` where it does not count answers.
    failed: Option<f64>,
    /// Requests to generate that it answered, and seconds it took for them.
    requests: f64,
    seconds: f64,
}

impl ApiServer {
    pub(super) fn take(&mut self, sample: &Sample<'_>) {
        let posted = sample.label("method") == "POST";
        let generates = || posted && GENERATE.contains(&&*sample.label("handler"));
        match &*sample.name {
            "http_requests_total" => {
                let failed = posted && sample.label("status").starts_with('5');
                *self.failed.get_or_insert(0.0) += if failed { sample.value } else { 0.0 };
            }
            "http_request_duration_seconds_count" if generates() => self.requests += sample.value,
            "http_request_duration_seconds_sum" if generates() => self.seconds += sample.value,
            _ => {}
        }
    }

    /// Says what was counted; `by_engine` are the failures that the engine counts.
    pub(super) fn emit(&self, by_engine: Option<f64>, subject: Subject, batch: &mut Batch) {
        if let Some(failed) = greater(by_engine, self.failed) {
            batch.push(subject, Metric::RequestsFailed, failed);
        }
        if self.requests > 0.0 {
            batch.push(subject, Metric::ApiRequests, self.requests);
            batch.push(subject, Metric::ApiSum, self.seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{IDLE_0_25, QUEUE_0_32, SPEC_0_25, grep, reading, translate, values};
    use super::*;
    use crate::model::Reading;

    #[test]
    fn failed_requests_are_those_of_the_engine_or_of_the_api_server_whichever_are_more() {
        let failed = |body: &str| reading(&translate(body), Metric::RequestsFailed).and_then(Reading::value);
        let http = "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 40\n\
                    http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 5\n\
                    http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"5xx\"} 3\n\
                    http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"5xx\"} 4\n\
                    http_requests_total{handler=\"/health\",method=\"GET\",status=\"5xx\"} 9\n";
        let engine = "vllm:admission_rejections_total{reason=\"max_num_queued_reqs\"} 6\n\
                      vllm:request_success_total{finished_reason=\"error\"} 2\n\
                      vllm:request_success_total{finished_reason=\"stop\"} 30\n";
        assert_eq!(
            (failed(http), failed(engine), failed(&format!("{http}{engine}"))),
            (Some(7.0), Some(8.0), Some(8.0))
        );
        assert_eq!((failed(SPEC_0_25), failed("vllm:num_requests_running 1\n")), (Some(0.0), None));
    }

    #[test]
    fn the_api_servers_times_are_those_of_requests_to_generate() {
        let batch = translate(QUEUE_0_32);
        let of = |what: &str, path: &str| {
            let start = format!("http_request_duration_seconds_{what}{{handler=\"{path}\",method=\"POST\"}}");
            if QUEUE_0_32.contains(&start) { grep(QUEUE_0_32, &start) } else { 0.0 }
        };
        let both = |what| of(what, "/v1/completions") + of(what, "/v1/chat/completions");
        assert!(both("count") > 0.0, "the body shows it");
        assert_eq!(values(&batch, &[Metric::ApiRequests, Metric::ApiSum]), [both("count"), both("sum")]);
        assert_eq!(reading(&translate(IDLE_0_25), Metric::ApiRequests), None, "only GET of /v1/models");
    }
}
