//! Streams of real servers, cut at every byte of what goes over the connection: each event is stamped with the arrival of
//! its last byte.

use super::*;

const VLLM: &str = include_str!("../../../../assets/streams/vllm-0.32.0-chat.sse");
const LLAMA_CPP: &str = include_str!("../../../../assets/streams/llamacpp-b11549-completions.sse");
const LLAMA_CPP_CHAT: &str = include_str!("../../../../assets/streams/llamacpp-b11549-chat.sse");
const ENGINE_DIED: &str = include_str!("../../../../assets/streams/vllm-0.32.0-engine-died.sse");

/// Its events, each with the blank line after it.
fn events(stream: &str) -> Vec<String> {
    stream.split_inclusive("\n\n").map(ToOwned::to_owned).collect()
}

async fn read(stream: &str) -> (Exchange, Vec<Stamp>) {
    let answer = [HEAD.as_bytes(), &chunk(stream), END.as_bytes()].concat();
    let mut bench = Bench::new([vec![Step::Hear, send(answer)]]);
    let exchange = bench.stream().await;
    (exchange, bench.stamps)
}

#[tokio::test(start_paused = true)]
async fn what_real_servers_said_is_understood() {
    let counted = |exchange: &Exchange| {
        assert_eq!((exchange.finish.as_deref(), &exchange.fault), (Some("length"), &None));
        let usage = exchange.usage.unwrap();
        (usage.prompt, usage.cached, usage.output)
    };
    let (exchange, stamps) = read(VLLM).await;
    assert_eq!(counted(&exchange), (Some(13), None, Some(4)));
    let tokens: Vec<_> = stamps.iter().map(|stamp| stamp.tokens).collect();
    assert_eq!(tokens, [Some(1); 4], "usage comes with each event");
    let (exchange, stamps) = read(LLAMA_CPP).await;
    assert_eq!(counted(&exchange), (Some(6), Some(1), Some(6)));
    assert!(stamps.len() == 6 && stamps.iter().all(|stamp| stamp.tokens.is_none()));
    let (exchange, stamps) = read(LLAMA_CPP_CHAT).await;
    assert_eq!(counted(&exchange), (Some(25), Some(1), Some(8)));
    assert_eq!(stamps.len(), LLAMA_CPP_CHAT.matches("\"delta\":{\"content\":\"").count());
    let (exchange, _) = read(ENGINE_DIED).await;
    assert!(matches!(&exchange.fault, Some(Fault::Stream(why)) if why.starts_with("EngineCore encountered an issue")));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_stamped_when_its_last_byte_came_wherever_it_is_cut() {
    for (stream, contents, line_end) in [(VLLM, 1..5, "\n"), (LLAMA_CPP, 0..6, "\r\n"), (VLLM, 1..5, "\r")] {
        let mut answer = HEAD.as_bytes().to_vec();
        // Where the last byte of each event is.
        let mut lasts = Vec::new();
        for event in events(stream) {
            let event = event.replace('\n', line_end);
            let (start, end) = event.split_at(event.len() / 2);
            answer.extend(chunk(start));
            answer.extend(chunk(end));
            // The LF of the last CR LF ends nothing more; CR LF follows the chunk.
            let after = if line_end == "\r\n" { 4 } else { 3 };
            lasts.push(answer.len() - after);
        }
        answer.extend(END.as_bytes());
        let lasts = &lasts[contents];
        for cut in 1..answer.len() {
            let (a, b) = answer.split_at(cut);
            let mut bench = Bench::new([vec![Step::Hear, Step::Wait(5), send(a), Step::Wait(7), send(b)]]);
            let exchange = bench.stream().await;
            assert_eq!((exchange.fault.clone(), since(&exchange, exchange.first_byte)), (None, Some(5)), "{cut}");
            let expected: Vec<u64> = lasts.iter().map(|&last| if last < cut { 5 } else { 12 }).collect();
            assert_eq!(bench.stamps(&exchange), expected, "{line_end:?} cut at {cut}");
            assert_eq!(since(&exchange, Some(exchange.end)), Some(12));
            assert_eq!(exchange.usage.unwrap().output, Some(lasts.len() as u64));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_comes_byte_by_byte_is_the_same() {
    let answer = [HEAD.as_bytes(), &chunk(VLLM), END.as_bytes()].concat();
    let bytes = answer.chunks(1).flat_map(|byte| [Step::Wait(1), send(byte)]);
    let mut bench = Bench::new([std::iter::once(Step::Hear).chain(bytes).collect()]);
    let exchange = bench.stream().await;
    assert_eq!((exchange.fault.clone(), bench.stamps.len()), (None, 4));
    assert_eq!(since(&exchange, exchange.first_byte), Some(1));
    // Byte n comes after n ms.
    let mut at = HEAD.len() + chunk(VLLM).len() - VLLM.len() - 2;
    let mut ends = Vec::new();
    for event in events(VLLM) {
        at += event.len();
        ends.push(at as u64);
    }
    assert_eq!(bench.stamps(&exchange), ends[1..5]);
    assert_eq!(since(&exchange, Some(exchange.end)), Some(answer.len() as u64));
}
