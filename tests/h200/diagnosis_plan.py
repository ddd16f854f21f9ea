"""What diagnosis.py does to which server, and which cause warptop has to name for it.

A phase:
  name, cause   the cause injected, by its id of docs/diagnosis.md
  first         ids that are right in the first place; the cause alone unless given
  within        the cause may stand so far down instead (a true finding that harms nobody, a cause behind its consequence)
  calm          nothing may ask for action: a phase with no fault
  s, lead       how long it lasts, and how long the load runs before the disturbance begins and the phase counts
  closed, open, long   the load: see diagnosis_load.py
  beside        programs of disturb.py that run for the whole phase
  do            what is done to the server when the phase begins, undone when it ends: see diagnosis.py
  load_ends     "start": all clients leave at once when the phase begins
  drain         seconds that requests under way get after the end (4 unless given)
  pair          the phase before a fix, to be set beside this one
  note          what happens, in words
A server's `mends` names the phase whose fix it applies: warptop's own words for `flag`, or `else` when it says none.
"""
COMMON = ["--max-model-len", "32768"]
LARGE = ["--gpu-memory-utilization", "0.3", *COMMON]
AT_EASE = ["healthy", "memory-bandwidth", "demand-limited"]


def closed(users, prompt, output, **more):
    return [dict(users=users, prompt=prompt, output=output, **more)]


DECODE = closed(12, 64, 512)
SIX = closed(24, 256, 128)
FORTY = closed(40, 256, 128)
LONG_ANSWERS = closed(64, 512, 1024)

MAIN = [
    dict(name="idle", cause="idle", first=["idle", "healthy"], calm=True, s=14, note="server up, nothing asked"),
    dict(name="light", cause="healthy", first=AT_EASE + ["idle"], calm=True, s=18, open=[dict(rate=3, prompt=300, output=96)],
         note="3 requests a second at random moments"),
    dict(name="decode12", cause="memory-bandwidth", first=["memory-bandwidth", "healthy"], calm=True, s=18, closed=DECODE, pair="eager12",
         note="12 users, nothing wrong; also the launch-overhead phase with its flag taken away"),
    dict(name="demand", cause="demand-limited", first=["demand-limited", "healthy", "idle"], calm=True, s=18,
         closed=closed(2, 200, 40, think=2.5), note="two users who think"),
    dict(name="prefill", cause="compute", first=["compute", "power-cap"], s=16, closed=closed(8, 6000, 8), note="long prompts, short answers"),
    dict(name="users200", cause="power-cap", first=["power-cap", "compute"], s=18, closed=closed(200, 512, 256),
         note="200 users; KV cache and slots are free"),
    dict(name="longprefill", cause="long-prefill", s=18, closed=closed(12, 64, 256), long=[dict(every=2, prompt=20000, output=4)],
         note="12 short chats, and a prompt of 20,000 tokens every 2 s"),
    dict(name="cached", cause="healthy", first=[*AT_EASE, "compute"], calm=True, s=18, closed=closed(20, 64, 64, shared=6000),
         note="6,000 of each prompt's tokens are shared and cached"),
    dict(name="cold", cause="prefix-cold", within=2, s=18, closed=closed(20, 6064, 64), note="the same lengths, nothing shared"),
    dict(name="copy", cause="neighbour", s=18, closed=closed(10, 64, 384), beside=["copy"], note="another process copies GPU memory"),
    dict(name="gemm", cause="neighbour", s=18, closed=closed(10, 64, 384), beside=["gemm"], note="another process multiplies matrices"),
    dict(name="h2d", cause="pcie-transfer", first=["pcie-transfer", "neighbour"], within=3, s=18, closed=closed(10, 64, 384), beside=["h2d"],
         note="another process copies host memory to the GPU; hardly harms"),
    dict(name="pinned", cause="host-cpu", s=17, closed=closed(32, 256, 128), do="pin", note="server confined to one CPU that two busy loops share"),
    dict(name="quota", cause="host-cpu", s=17, closed=closed(32, 256, 128), do="quota", note="server's cgroup gets 40 % of one CPU"),
    dict(name="frontend", cause="frontend", s=17, closed=closed(240, 16, 1), note="tiny requests at a high rate"),
    dict(name="faults", cause="page-faults", first=["page-faults", *AT_EASE], within=3, s=17, closed=closed(10, 64, 384), beside=["faults", "faults"],
         note="another program's major page faults; harms nobody"),
    dict(name="cost32", cause="memory-bandwidth", first=["memory-bandwidth", "healthy"], calm=True, s=35, closed=closed(32, 512, 128), cost=True,
         note="32 users; what warptop costs is measured"),
    dict(name="aborted", cause="idle", first=["idle", "healthy"], calm=True, s=14, lead=5, closed=closed(24, 128, 2000), load_ends="start",
         note="24 clients leave at once in mid-answer; the engine's gauges may stay"),
    dict(name="stalled", cause="stalled", s=16, lead=5, closed=closed(16, 128, 256), do="stop-engine", note="EngineCore stopped by SIGSTOP"),
    dict(name="frozen", cause="unreadable", first=["unreadable", "stalled"], s=15, lead=4, closed=closed(8, 128, 128), do="stop-api", drain=3,
         note="API server stopped by SIGSTOP: nothing answers"),
    dict(name="down", cause="down", s=16, lead=3, closed=closed(4, 128, 128), do="kill", drain=0, note="kill -9 of all the server's processes"),
]

BY_NAME = {phase["name"]: phase for phase in MAIN}

SERVERS = [
    dict(name="main", start_s=140, options=[*LARGE, "--max-num-seqs", "256"], phases=MAIN),
    dict(name="seqs6", start_s=110, options=[*LARGE, "--max-num-seqs", "6"], phases=[
        dict(name="seqs6", cause="admission-limit", s=20, closed=SIX, note="--max-num-seqs 6 beside a free KV cache, 24 users")]),
    dict(name="seqs6-mended", start_s=110, mends="seqs6", flag="--max-num-seqs", fallback="64", options=[*LARGE, "--max-num-seqs", "6"], phases=[
        dict(name="seqs6-mended", cause="memory-bandwidth", first=["memory-bandwidth", "healthy"], calm=True, s=20, closed=SIX, pair="seqs6",
             note="the same load with what the fix said")]),
    dict(name="eager", start_s=70, options=[*LARGE, "--max-num-seqs", "256", "--enforce-eager"], phases=[
        dict(name="eager12", cause="launch-overhead", s=18, closed=DECODE, note="no CUDA graphs (--enforce-eager), 12 users")]),
    dict(name="kv", start_s=110, options=["--gpu-memory-utilization", "0.13", "--max-model-len", "8192", "--max-num-seqs", "256"], phases=[
        dict(name="kv", cause="kv-capacity", s=26, closed=LONG_ANSWERS, drain=3, note="28,000 tokens of KV cache for 64 users with long answers")]),
    dict(name="kv-mended", start_s=110, mends="kv", flag="--gpu-memory-utilization", fallback="0.9",
         options=["--gpu-memory-utilization", "0.13", "--max-model-len", "8192", "--max-num-seqs", "256"], phases=[
        dict(name="kv-mended", cause="memory-bandwidth", first=["memory-bandwidth", "healthy", "power-cap"], s=26, closed=LONG_ANSWERS, drain=3, pair="kv",
             note="the same load with what the fix said")]),
    # The short round, 11 minutes for both: --only tight,loose.
    dict(name="tight", start_s=75, options=[*LARGE, "--max-num-seqs", "12", "--enforce-eager"], phases=[
        dict(name="eager12", cause="launch-overhead", s=16, closed=DECODE, note="no CUDA graphs (--enforce-eager), 12 users"),
        dict(name="seqs12", cause="admission-limit", s=17, closed=FORTY, note="--max-num-seqs 12 beside a free KV cache, 40 users")]),
    dict(name="loose", start_s=130, mends="seqs12", flag="--max-num-seqs", fallback="64", options=[*LARGE, "--max-num-seqs", "12"], phases=[
        dict(BY_NAME["decode12"], s=15),
        dict(name="forty", cause="memory-bandwidth", first=["memory-bandwidth", "healthy", "power-cap", "compute"], s=15, closed=FORTY, pair="seqs12",
             note="the load of seqs12 with what its fix said"),
        *[dict(BY_NAME[name], s=15) for name in
          ("copy", "longprefill", "pinned", "frontend", "cached", "cold", "light", "demand", "prefill", "stalled", "users200")],
        dict(BY_NAME["cost32"], s=33), *[dict(BY_NAME[name], s=14) for name in ("aborted", "faults", "down")]]),
]
