//! Command lines of serving engines: which program runs, and which part of an engine it is.
//!
//! Pure: words in, a judgement out; it must not read `/proc`. Invariant: what counts is what runs, that
//! is the program itself, or the module or script that Python runs. A shell, an editor, a log viewer or a
//! container client that merely names an engine is none.

use crate::model::secret::mask_words;

/// An engine as a program, whatever it calls its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Text Generation Inference.
    Tgi,
    /// LoRAX.
    Lorax,
    /// Triton Inference Server.
    Triton,
    /// TensorRT-LLM's own server.
    TrtLlm,
    /// llama.cpp.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// LMDeploy.
    Lmdeploy,
    /// NVIDIA Dynamo.
    Dynamo,
    /// Aphrodite.
    Aphrodite,
    /// MLC LLM.
    Mlc,
}

impl Family {
    /// The name people know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Tgi => "TGI",
            Self::Lorax => "LoRAX",
            Self::Triton => "Triton",
            Self::TrtLlm => "TensorRT-LLM",
            Self::LlamaCpp => "llama.cpp",
            Self::Ollama => "Ollama",
            Self::Lmdeploy => "LMDeploy",
            Self::Dynamo => "Dynamo",
            Self::Aphrodite => "Aphrodite",
            Self::Mlc => "MLC LLM",
        }
    }
}

/// What a process does for its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers clients, or starts the process that does.
    Server,
    /// It talks to its own kind only; a stranger's bytes would disturb it.
    Part,
}

/// A process of a serving engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Which engine.
    pub family: Family,
    /// What it does there.
    pub role: Role,
    /// Whose options its command line takes: a Dynamo worker takes those of the engine it runs.
    pub options: Family,
}

/// How a row of [`PROGRAMS`] is compared.
#[derive(Clone, Copy)]
enum Name {
    /// Name of a program or script, without directory.
    Program(&'static str),
    /// Dotted path of a Python module, or of a package that holds it.
    Module(&'static str),
    /// Start of a title that a process has given itself, or of a script's name.
    Start(&'static str),
}

use Family::{Aphrodite, Dynamo, LlamaCpp, Lmdeploy, Lorax, Mlc, Ollama, Sglang, Tgi, Triton, TrtLlm, Vllm};
use Name::{Module, Program, Start};
use Role::{Part, Server};

/// What engine processes look like. The first row that fits counts; where verbs are listed, one of them
/// has to follow the name. Titles are those that vLLM and SGLang give their processes with setproctitle.
const PROGRAMS: &[(Name, &[&str], Family, Role)] = &[
    (Start("VLLM::APIServer"), &[], Vllm, Server),
    (Start("VLLM::"), &[], Vllm, Part),
    (Program("vllm"), &["serve"], Vllm, Server),
    (Module("vllm.entrypoints.cli.main"), &["serve"], Vllm, Server),
    (Module("vllm.entrypoints.openai"), &[], Vllm, Server),
    (Module("vllm.entrypoints.api_server"), &[], Vllm, Server),
    (Module("vllm.entrypoints.grpc_server"), &[], Vllm, Server),
    (Start("sglang::"), &[], Sglang, Part),
    (Program("sglang"), &["serve"], Sglang, Server),
    (Module("sglang.launch_server"), &[], Sglang, Server),
    (Program("text-generation-launcher"), &[], Tgi, Server),
    (Program("text-generation-router"), &[], Tgi, Server),
    (Program("text-generation-server"), &["serve"], Tgi, Part),
    (Program("lorax-launcher"), &[], Lorax, Server),
    (Program("lorax-router"), &[], Lorax, Server),
    (Program("lorax-server"), &["serve"], Lorax, Part),
    (Program("tritonserver"), &[], Triton, Server),
    (Program("triton_python_backend_stub"), &[], Triton, Part),
    (Program("trtllm-serve"), &[], TrtLlm, Server),
    (Module("tensorrt_llm.commands.serve"), &[], TrtLlm, Server),
    (Program("llama-server"), &[], LlamaCpp, Server),
    (Program("llama"), &["serve", "server"], LlamaCpp, Server),
    (Module("llama_cpp.server"), &[], LlamaCpp, Server),
    (Start("xllama"), &[], LlamaCpp, Server),
    (Program("ollama"), &["serve", "start"], Ollama, Server),
    (Program("ollama"), &["runner"], Ollama, Part),
    (Program("ollama_llama_server"), &[], Ollama, Part),
    (Program("lmdeploy"), &["serve"], Lmdeploy, Server),
    (Module("lmdeploy.serve"), &[], Lmdeploy, Server),
    (Module("dynamo.frontend"), &[], Dynamo, Server),
    (Module("dynamo.vllm"), &[], Dynamo, Server),
    (Module("dynamo.sglang"), &[], Dynamo, Server),
    (Module("dynamo.trtllm"), &[], Dynamo, Server),
    (Module("dynamo.mocker"), &[], Dynamo, Server),
    (Module("dynamo.router"), &[], Dynamo, Server),
    (Program("dynamo-run"), &[], Dynamo, Server),
    (Program("aphrodite"), &["run", "serve"], Aphrodite, Server),
    (Module("aphrodite.endpoints"), &[], Aphrodite, Server),
    (Program("mlc_llm"), &["serve"], Mlc, Server),
];

/// Whether a command line of llama.cpp's server names no model: then it starts a server for each that is asked for.
pub fn is_router(words: &[String]) -> bool {
    const MODEL: &[&str] = &["-m", "--model", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-dr", "--docker-repo"];
    option(words, MODEL).is_none()
}

/// The words of a `/proc/PID/cmdline`, its secrets masked: what a command line is read with, everywhere. A process that
/// has set its own title leaves one word of it.
pub fn words(cmdline: &[u8]) -> Vec<String> {
    mask_words(bare_words(cmdline))
}

/// The words with their secrets: not to leave this module.
fn bare_words(cmdline: &[u8]) -> Vec<String> {
    let words = cmdline.split(|&b| b == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).trim().to_owned()).collect()
}

/// Which engine's process has this `/proc/PID/cmdline`, if any. Secrets are not looked for, since no word is given out.
pub fn of_process(cmdline: &[u8]) -> Option<Launch> {
    recognise(&bare_words(cmdline))
}

/// Which engine's process has this command line, if any.
pub fn recognise(words: &[impl AsRef<str>]) -> Option<Launch> {
    let (program, rest) = program(words)?;
    let verb = rest.first().map(AsRef::as_ref);
    let fits = |verbs: &[&str]| verbs.is_empty() || verb.is_some_and(|verb| verbs.contains(&verb));
    let row = PROGRAMS.iter().find(|(name, verbs, ..)| program.is(*name) && fits(verbs))?;
    let (_, _, family, role) = *row;
    Some(Launch { family, role, options: program.options(family) })
}

/// Whether this command line, its words joined by blanks, is that of an engine's process.
pub fn is_engine(command: &str) -> bool {
    recognise(&command.split_whitespace().collect::<Vec<_>>()).is_some()
}

/// What runs.
struct Running<'a> {
    /// Program or script, with its directory; or dotted module.
    name: &'a str,
    /// Run by Python with `-m`.
    module: bool,
}

impl Running<'_> {
    fn is(&self, row: Name) -> bool {
        let base = base_name(self.name);
        match row {
            // `python -m vllm serve` runs what the script `vllm` runs.
            Name::Program(name) => base == name,
            Name::Start(start) => !self.module && base.starts_with(start),
            Name::Module(module) if self.module => {
                self.name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }
            Name::Module(module) => {
                // The same module run by its path, as in `python /opt/vllm/entrypoints/openai/api_server.py`.
                let Some(path) = self.name.strip_suffix(".py") else { return false };
                format!("/{path}/").contains(&format!("/{}/", module.replace('.', "/")))
            }
        }
    }

    fn options(&self, family: Family) -> Family {
        match self.name {
            "dynamo.vllm" | "dynamo.vllm.main" => Family::Vllm,
            "dynamo.sglang" | "dynamo.sglang.main" => Family::Sglang,
            _ => family,
        }
    }
}

/// What runs, and the words after it.
fn program<T: AsRef<str>>(words: &[T]) -> Option<(Running<'_>, &[T])> {
    let (first, mut rest) = words.split_first()?;
    let base = base_name(first.as_ref());
    if !base.starts_with("python") && !base.starts_with("pypy") {
        return Some((Running { name: first.as_ref(), module: false }, rest));
    }
    loop {
        let (word, after) = rest.split_first()?;
        let (word, next) = (word.as_ref(), after.first().map(AsRef::as_ref));
        let past_next = after.get(1..).unwrap_or_default();
        // Flags of Python come in clusters, the last of which may take a value: `-um module`.
        let flags = word.strip_prefix('-').filter(|flags| !flags.starts_with('-'));
        match flags {
            Some("X" | "W") => rest = past_next,
            Some(flags) if flags.starts_with(['X', 'W']) => rest = after,
            // Code on the command line, or on standard input.
            Some(flags) if flags.is_empty() || flags.starts_with('c') || flags.ends_with('c') => return None,
            Some(flags) if flags.ends_with('m') => return Some((Running { name: next?, module: true }, past_next)),
            Some(flags) if flags.starts_with('m') => return Some((Running { name: &flags[1..], module: true }, after)),
            Some(_) => rest = after,
            None if word.starts_with('-') => rest = after,
            None => return Some((Running { name: word, module: false }, after)),
        }
    }
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The last value given to an option under one of its names, written with dashes: `--name value` or
/// `--name=value`, where the engines' own parsers take `_` for `-`.
pub fn option<'a, T: AsRef<str>>(words: &'a [T], names: &[&str]) -> Option<&'a str> {
    let mut found = None;
    for (place, word) in words.iter().enumerate() {
        let word = word.as_ref();
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        if name.starts_with('-') && names.contains(&name.replace('_', "-").as_str()) {
            found = value.or_else(|| words.get(place + 1).map(AsRef::as_ref));
        }
    }
    found
}

/// The port that a server was told to listen on, or its metrics where those have a port of their own.
pub fn port(launch: Launch, words: &[impl AsRef<str>]) -> Option<u16> {
    let names: &[&str] = match launch.family {
        Family::Triton => &["--metrics-port"],
        Family::Tgi | Family::Lorax => &["--port", "-p"],
        Family::Dynamo => &["--http-port", "--port"],
        _ => &["--port"],
    };
    option(words, names)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<(Family, Role)> {
        recognise(&line.split(' ').collect::<Vec<_>>()).map(|launch| (launch.family, launch.role))
    }

    #[test]
    fn engines_are_told_by_what_runs() {
        for (line, family, role) in [
            ("python3 -m vllm.entrypoints.openai.api_server --model m", Vllm, Server),
            ("/usr/bin/python3.12 -u -m vllm.entrypoints.cli.main serve m", Vllm, Server),
            ("python3 -X dev -W ignore -um vllm.entrypoints.api_server", Vllm, Server),
            ("python3 /opt/lib/python3.12/site-packages/vllm/entrypoints/openai/api_server.py", Vllm, Server),
            ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve meta-llama/Llama-3.1-8B", Vllm, Server),
            ("python -m vllm serve m", Vllm, Server),
            ("vllm serve m", Vllm, Server),
            ("VLLM::APIServer_0", Vllm, Server),
            ("VLLM::EngineCore", Vllm, Part),
            ("VLLM::EngineCore_DP1", Vllm, Part),
            ("VLLM::Worker_TP0", Vllm, Part),
            ("VLLM::DPCoordinator", Vllm, Part),
            ("python3 -u -m sglang.launch_server --model-path m", Sglang, Server),
            ("sglang serve --model-path m", Sglang, Server),
            ("sglang::scheduler_TP0", Sglang, Part),
            ("sglang::detokenizer", Sglang, Part),
            ("text-generation-launcher --model-id m", Tgi, Server),
            ("text-generation-router --port 80", Tgi, Server),
            ("/opt/conda/bin/python3.11 /opt/conda/bin/text-generation-server serve m", Tgi, Part),
            ("lorax-launcher --model-id m", Lorax, Server),
            ("lorax-router", Lorax, Server),
            ("/opt/tritonserver/bin/tritonserver --model-repository=/models", Triton, Server),
            ("/opt/tritonserver/backends/python/triton_python_backend_stub a", Triton, Part),
            ("/usr/bin/python3 /usr/local/bin/trtllm-serve m --tp_size 2", TrtLlm, Server),
            ("./llama-server -m model.gguf", LlamaCpp, Server),
            ("python -m llama_cpp.server --model m.gguf", LlamaCpp, Server),
            ("python3 /srv/xllama_serve.py --model m.gguf", LlamaCpp, Server),
            ("/usr/local/bin/ollama serve", Ollama, Server),
            ("/usr/local/bin/ollama runner --model /blob --port 41235", Ollama, Part),
            ("lmdeploy serve api_server m", Lmdeploy, Server),
            ("python -m dynamo.frontend --http-port 8000", Dynamo, Server),
            ("python3 -m dynamo.vllm --model m", Dynamo, Server),
        ] {
            assert_eq!(of(line), Some((family, role)), "{line}");
        }
    }

    #[test]
    fn what_only_names_an_engine_is_none() {
        for line in [
            "",
            "bash",
            "bash -c vllm serve m",
            "sh -c exec python3 -m vllm.entrypoints.openai.api_server",
            "/bin/bash /usr/local/bin/vllm serve m",
            "vim vllm.py",
            "nano /opt/vllm/entrypoints/openai/api_server.py",
            "grep -r vllm.entrypoints .",
            "tail -f vllm.log",
            "less sglang::scheduler.log",
            "docker run --gpus all vllm/vllm-openai:latest --model m",
            "docker logs -f text-generation-launcher",
            "sudo -u llm vllm serve m",
            "ssh gpu7 vllm serve m",
            "python3 train.py vllm serve",
            "python3 -c from multiprocessing.spawn import spawn_main; vllm serve",
            "python3 -uc import vllm",
            "python3 - vllm serve",
            "python3 -m vllm.entrypoints.cli.main bench serve",
            "python3 -m pytest tests/vllm/entrypoints/test_api_server.py",
            "python3 -m vllmtop",
            "python3 -m",
            "python3",
            "vllm bench serve",
            "vllm",
            "vllmtop",
            "ollama list",
            "ollama run llama3",
            "llama-server-proxy",
            "llama-cli -m m.gguf",
            "ray::RayWorkerWrapper",
            "target/debug/deps/engines-0123456789abcdef vllm_stand_in",
            "warptop --engine vllm:8000",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn a_worker_of_dynamo_takes_its_engines_options() {
        let of = |line: &str| recognise(&line.split(' ').collect::<Vec<_>>()).map(|launch| launch.options);
        assert_eq!(of("python3 -m dynamo.vllm --model m"), Some(Vllm));
        assert_eq!(of("python3 -m dynamo.sglang.main --model m"), Some(Sglang));
        assert_eq!(of("python3 -m dynamo.frontend"), Some(Dynamo));
    }

    #[test]
    fn options_in_all_their_spellings() {
        let words: Vec<_> = "vllm serve m --port=1 --max_num_seqs 8 -tp 2 --port 8123 --x".split(' ').collect();
        assert_eq!(option(&words, &["--port"]), Some("8123"), "the last one counts");
        assert_eq!(option(&words, &["--max-num-seqs"]), Some("8"));
        assert_eq!(option(&words, &["-tp", "--tensor-parallel-size"]), Some("2"));
        assert_eq!(option(&words, &["--x"]), None, "nothing follows");
        assert_eq!(option(&words, &["--model"]), None);
        let port_of = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            recognise(&words).and_then(|launch| port(launch, &words))
        };
        assert_eq!(port_of("vllm serve m --port 8123"), Some(8123));
        assert_eq!(port_of("tritonserver --http-port 1 --metrics-port=9002"), Some(9002));
        assert_eq!(port_of("text-generation-router -p 81"), Some(81));
        for line in ["vllm serve m --port", "vllm serve m --port x", "vllm serve m --port=99999", "vllm serve m"] {
            assert_eq!(port_of(line), None, "{line}");
        }
    }

    #[test]
    fn a_title_is_one_word_and_loses_its_padding() {
        assert_eq!(words(b"VLLM::EngineCore      \0\0\0"), ["VLLM::EngineCore"]);
        assert_eq!(words(b"a\0b c\0"), ["a", "b c"]);
        assert_eq!(words(b"").len(), 0);
        assert_eq!(words(b"\xff\0x").len(), 2);
    }
}
