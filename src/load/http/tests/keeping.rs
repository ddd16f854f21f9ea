//! Connections: kept, replaced, given up, never used twice for one request.

use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_connection_carries_one_request_after_the_other() {
    let one = |ms| stream(ms, &[say("a")]);
    let steps = [one(5), vec![Step::Hear, send(plain("200 OK", "", "{}"))], one(7), vec![Step::Hold]].concat();
    let mut bench = Bench::new([steps]);
    let first = bench.stream().await;
    assert!(first.connected);
    bench.lane.whole(Call { path: "/health", body: None, limit: LIMIT, output: None }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let second = bench.stream().await;
    assert_eq!((second.connected, second.fault.clone()), (false, None));
    assert_eq!((bench.stamps(&second), since(&second, second.first_byte)), (vec![7], Some(0)), "nothing of the first");
    assert_eq!(bench.server.notes().connections, 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_closed_while_idle_is_replaced() {
    let closing =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let said = vec![Step::Hear, send(closing), send(chunk(say("a"))), send(chunk(DONE)), send(END), Step::Hold];
    let noise = [stream(1, &[say("a")]), vec![Step::Wait(3), send("HTTP/1.1 408 Idle\r\n\r\n"), Step::Hold]].concat();
    let silent = stream(1, &[say("a")]);
    for first in [silent, said, noise] {
        let mut bench = Bench::new([first, stream(2, &[say("b")])]);
        assert_eq!(bench.stream().await.fault, None);
        tokio::time::sleep(Duration::from_secs(9)).await;
        let exchange = bench.stream().await;
        assert_eq!((exchange.fault.clone(), exchange.connected), (None, true));
        assert_eq!(bench.stamps(&exchange), [2]);
        assert_eq!(bench.server.notes().heard.len(), 2, "nothing was sent into the void");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_only_when_nothing_came_over_an_old_connection() {
    // The server closes at the very moment at which it is asked again.
    let race = [stream(1, &[say("a")]), vec![Step::Hear, Step::Wait(3)]].concat();
    let mut bench = Bench::new([race.clone(), stream(2, &[say("b")])]);
    bench.stream().await;
    let before = bench.lane.target.clock.micros();
    let exchange = bench.stream().await;
    assert_eq!((exchange.fault.clone(), exchange.connected), (None, true));
    assert_eq!(exchange.dispatched, Some(before + 3000), "from when it was sent over the new one");
    assert_eq!(bench.stamps(&exchange), [2]);

    let mut bench = Bench::new([race, vec![Step::Hear], stream(1, &[say("b")])]);
    bench.stream().await;
    assert!(matches!(bench.stream().await.fault, Some(Fault::Cut(_))), "once, and not over a new one");
    assert_eq!(bench.server.notes().heard.len(), 3);

    let begun = [stream(1, &[say("a")]), vec![Step::Hear, send("HTTP/1.1 2")]].concat();
    let mut bench = Bench::new([begun, stream(1, &[say("b")])]);
    bench.stream().await;
    assert!(matches!(bench.stream().await.fault, Some(Fault::Cut(_))), "an answer had begun");
    assert_eq!(bench.server.notes().heard.len(), 2);

    let mut bench = Bench::new([[stream(1, &[say("a")]), vec![Step::Hear]].concat()]);
    bench.stream().await;
    let exchange = bench.stream().await;
    let fault = Some(Fault::Unconnected("refused by the script".to_owned()));
    assert_eq!((exchange.fault, exchange.dispatched, exchange.connected), (fault, None, false));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_over_a_request_on_an_old_connection_is_seen() {
    for (ms, fails) in [(5, false), (6, true), (4_000, true)] {
        let dies = [stream(1, &[say("a")]), vec![Step::Hear, Step::Wait(ms)]].concat();
        let mut bench = Bench::new([dies, stream(2, &[say("b")])]);
        bench.stream().await;
        let exchange = bench.stream().await;
        assert_eq!(matches!(exchange.fault, Some(Fault::Cut(_))), fails, "{ms} ms: {exchange:?}");
        assert_eq!(bench.server.notes().heard.len(), if fails { 2 } else { 3 });
        assert_eq!(since(&exchange, Some(exchange.end)), Some(if fails { ms } else { 2 }), "nothing is hidden");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_bounds_the_whole_exchange() {
    let drip = vec![vec![Step::Wait(100), send(chunk(say("a")))]; 30].concat();
    let steps = [vec![Step::Hear, Step::Wait(50), send(HEAD)], drip].concat();
    let mut bench = Bench::new([steps, stream(1, &[say("b")])]);
    let limit = Duration::from_secs(1);
    let exchange = bench.stream_within(limit).await;
    assert_eq!(exchange.fault, Some(Fault::Timeout(limit)));
    assert_eq!((since(&exchange, Some(exchange.end)), bench.stamps(&exchange).len()), (Some(1000), 9));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.server.notes().gone, [START + 1_050_000], "the server noticed as soon as it sent again");
    assert!(bench.stream().await.connected, "nothing of the old answer can come");
    assert_eq!(bench.stamps.len(), 1);

    let mut bench = Bench::new([vec![Step::Connect(2000), Step::Hold]]);
    let exchange = bench.stream_within(limit).await;
    assert!(matches!(&exchange.fault, Some(Fault::Unconnected(why)) if why.contains("in time")), "{exchange:?}");
    assert_eq!((exchange.dispatched, exchange.end, exchange.connected), (None, START + 1_000_000, false));
    let mut bench = Bench::new([vec![Step::Hear, Step::Hold]]);
    let call = Call { path: "/v1/models", body: None, limit, output: None };
    assert_eq!(bench.lane.whole(call).await, Err(Fault::Timeout(limit)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_on_beyond_what_was_asked_for_is_given_up() {
    let endless =
        [vec![Step::Hear, send(HEAD)], vec![vec![Step::Wait(1), send(chunk(say("a")))]; 300].concat()].concat();
    let mut bench = Bench::new([endless, stream(1, &[say("b")])]);
    let call = Call { output: Some(5), ..post() };
    let exchange = bench.lane.stream(call, &mut bench.stamps).await;
    let words = "it goes on after 21 tokens though 5 tokens were asked for";
    assert_eq!(exchange.fault, Some(Fault::Malformed(words.to_owned())));
    assert_eq!((bench.stamps.len(), since(&exchange, Some(exchange.end))), (22, Some(22)));
    assert!(bench.stream().await.connected, "its connection is dropped");
    // Events without content are none of tokens, but have an end too; so has an event of many tokens.
    let empty = [vec![Step::Hear, send(HEAD)], vec![vec![send(chunk(say("")))]; 300].concat()].concat();
    let many = format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"a\",\"token_ids\":{:?}}}]}}\n\n", [1; 22]);
    let many = vec![Step::Hear, send(HEAD), send(chunk(&many)), Step::Hold];
    for (steps, words) in [(empty, "it goes on after 84 events"), (many, "it goes on after 21 tokens")] {
        let mut bench = Bench::new([steps]);
        let call = Call { output: Some(5), ..post() };
        let exchange = bench.lane.stream(call, &mut bench.stamps).await;
        assert!(matches!(&exchange.fault, Some(Fault::Malformed(why)) if why.starts_with(words)), "{exchange:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn giving_up_closes_the_connection() {
    for steps in [vec![Step::Hear, Step::Hold], vec![Step::Hear, send(HEAD), send(chunk(say("a"))), Step::Hold]] {
        let mut bench = Bench::new([steps, stream(1, &[say("b")])]);
        assert!(timeout(Duration::from_millis(300), bench.stream()).await.is_err());
        tokio::task::yield_now().await;
        assert_eq!(bench.server.notes().gone, [START + 300_000]);
        let exchange = bench.stream().await;
        assert_eq!((exchange.fault, exchange.connected, bench.stamps.len()), (None, true, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_end_after_done_costs_its_connection_only() {
    let steps = vec![Step::Hear, send(HEAD), send(chunk(say("a"))), Step::Wait(6), send(chunk(DONE)), Step::Hold];
    let mut bench = Bench::new([steps, stream(1, &[say("b")])]);
    let began = Instant::now();
    let exchange = bench.stream().await;
    assert_eq!((exchange.fault.clone(), since(&exchange, Some(exchange.end))), (None, Some(6)));
    assert_eq!(began.elapsed(), Duration::from_millis(6) + AFTER_DONE);
    assert!(bench.stream().await.connected);
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_is_bounded() {
    let whole = |steps: Vec<Step>| async {
        let mut bench = Bench::new([steps]);
        bench.lane.whole(Call { path: "/v1/models", body: None, limit: LIMIT, output: None }).await
    };
    let head = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {MAX_BODY}\r\n\r\n");
    let answer = whole(vec![Step::Hear, send(head), send(vec![b' '; MAX_BODY])]).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (404, MAX_BODY), "a status is for the caller to judge");
    let endless = vec![Step::Hear, send("HTTP/1.1 200 OK\r\n\r\n"), send(vec![b' '; MAX_BODY + 1]), Step::Hold];
    assert!(matches!(whole(endless).await, Err(Fault::Malformed(why)) if why.contains("longer than 8 MiB")));
    let short = vec![Step::Hear, send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")];
    assert!(matches!(whole(short).await, Err(Fault::Cut(_))));
    assert_eq!(whole(vec![Step::Hear, send(plain("200 OK", "", "{}"))]).await.unwrap().body, b"{}");
}
