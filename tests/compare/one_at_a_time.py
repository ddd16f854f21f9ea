#!/usr/bin/env python3
"""A server that takes SECONDS (0.5) for an answer and gives one at a time: the classic example of docs/sweep.md.

    one_at_a_time.py [PORT] [SECONDS]     # 18099; OpenAI's completions, streamed, one token each
"""
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 18099
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
turn = threading.Lock()


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, kind, body, status=200):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v1/models":
            self.answer("application/json", json.dumps({"data": [{"id": "one-at-a-time"}]}).encode())
        else:
            self.answer("application/json", b"{}", 404)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 1}
        choice = {"index": 0, "text": " token", "finish_reason": "length"}
        with turn:
            if asked.get("max_tokens", 1) == 1 and asked.get("stream"):
                time.sleep(SECONDS)
        if not asked.get("stream"):
            self.answer("application/json", json.dumps({"choices": [choice], "usage": usage}).encode())
            return
        events = [json.dumps({"choices": [choice]}), json.dumps({"choices": [], "usage": usage}), "[DONE]"]
        self.answer("text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode())


ThreadingHTTPServer(("127.0.0.1", PORT), Server).serve_forever()
