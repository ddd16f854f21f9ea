//! The one table of what keys do. Key resolution, the help screen and the footer's hints come from it.

use super::Key;

/// What a key does, for people.
#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    /// The action.
    pub action: Action,
    /// Its heading on the help screen.
    pub section: &'static str,
    /// Keys that do it.
    pub keys: &'static [Key],
    /// Keys as the help screen and the footer name them.
    pub label: &'static str,
    /// One word for the footer; empty: only on the help screen.
    pub hint: &'static str,
    /// What it does, for the help screen.
    pub help: &'static str,
}

macro_rules! actions {
    ($( $section:literal { $( $name:ident [$($key:expr),+] $label:literal $hint:literal $help:literal; )+ } )+) => {
        /// Something a key can do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action { $($( #[doc = $help] $name, )+)+ }

        /// Every action, in the order of the help screen.
        pub const ACTIONS: &[ActionSpec] = {
            use Key::*;
            &[$($( ActionSpec {
                action: Action::$name, section: $section, keys: &[$($key),+], label: $label, hint: $hint, help: $help,
            }, )+)+]
        };
    };
}

actions! {
    "Panes" {
        FocusNext [Tab] "Tab" "pane" "Next pane (next tab on a small screen).";
        FocusPrevious [BackTab] "Shift-Tab" "" "Previous pane.";
        Show [Char('1'), Char('2'), Char('3'), Char('4'), Char('5'), Char('6'), Char('7'), Char('8'), Char('9')]
            "1-9" "" "Pane by its number.";
        Zoom [Char('z')] "z" "zoom" "The pane alone on the screen, and back.";
        Evidence [Enter, Char('D')] "Enter D" "" "The evidence: figures, rule and fixes of each finding. On a probe, Enter opens its last report.";
    }
    "What is shown" {
        NextGpu [Char('g')] "g" "" "Next GPU.";
        PreviousGpu [Char('G')] "G" "" "Previous GPU.";
        NextEngine [Char('e')] "e" "" "Next engine; several are listed below the host's line.";
        PreviousEngine [Char('E')] "E" "" "Previous engine.";
        NextMetric [Char('m')] "m" "metric" "Next latency that the engine exposes: TTFT, ITL, TPOT, E2E, queue, prefill, decode.";
        PreviousMetric [Char('M')] "M" "" "The latency before.";
        Cursor [Char('c')] "c" "" "Cursor on a map, the load sweep or a time axis: reads out a cell, a level or what held then.";
        Peak [Char('P')] "P" "" "DRAM in % of what the probe hbm measured on this GPU, or of the datasheet's peak.";
        Up [Up, Char('k')] "Up k" "" "Cursor, page, report or chosen probe up.";
        Down [Down, Char('j')] "Down j" "" "Cursor, page, report or chosen probe down.";
    }
    "Time" {
        Shorter [Char('[')] "[" "" "Shorter time axis.";
        Longer [Char(']')] "]" "" "Longer time axis.";
        Pause [Char(' ')] "Space" "pause" "Stand still or go on. Live: back to now.";
        Left [Left, Char('h')] "Left h" "" "Back in time by a tenth of the axis; a replay seeks. Moves the cursor while it is on.";
        Right [Right, Char('l')] "Right l" "" "Forward in time by a tenth of the axis; a replay seeks. Moves the cursor while it is on.";
        Start [Home] "Home" "" "The oldest data; a replay's start, 0:00.";
        Edge [End] "End" "" "Now; a replay's end.";
        Slower [Char('-')] "-" "" "Replay slower.";
        Faster [Char('+'), Char('=')] "+" "" "Replay faster.";
    }
    "Probes" {
        Probes [Char('p')] "p" "probes" "The pane of probes. The key before a name asks for it, whatever it does elsewhere: h, l, m, c.";
        Yes [Char('y')] "y" "" "In the pane of probes: run the probe that asks.";
        No [Char('n')] "n" "" "In the pane of probes: do not run it. Esc does the same.";
        Force [Char('F')] "F" "" "In the pane of probes: ask again for one that was refused, to run it all the same.";
        Stop [Char('x')] "x" "" "Stop the probe that runs, from anywhere.";
    }
    "Program" {
        Help [Char('?')] "?" "help" "This screen.";
        Back [Esc] "Esc" "" "Closes a page, then a report, what is said about probes, the zoom, the cursor.";
        Log [Char('L')] "L" "" "The log; a replay has none.";
        Demo [Char('d')] "d" "" "Where there is neither GPU nor engine: a recording of a real H200 serving a model.";
        Repaint [Ctrl('l')] "Ctrl-L" "" "Paint the screen anew.";
        Suspend [Ctrl('z')] "Ctrl-Z" "" "Back to the shell; fg returns here.";
        Quit [Char('q'), Ctrl('c')] "q" "quit" "Leave. Ctrl-C does the same.";
    }
}

impl Action {
    /// The action of a key and the key's place in that action's list (for [`Action::Show`]: the pane).
    pub fn of(key: Key) -> Option<(Self, usize)> {
        ACTIONS.iter().find_map(|spec| Some((spec.action, spec.keys.iter().position(|k| *k == key)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_reached_by_each_of_its_keys() {
        for (place, spec) in ACTIONS.iter().enumerate() {
            assert_eq!(spec.action as usize, place);
            for (i, &key) in spec.keys.iter().enumerate() {
                // Fails as well when an earlier action has the same key.
                assert_eq!(Action::of(key), Some((spec.action, i)), "{key}");
            }
        }
    }

    #[test]
    fn labels_name_the_keys() {
        for spec in ACTIONS.iter().filter(|s| s.action != Action::Show) {
            let first = spec.keys[0].to_string();
            assert!(spec.label.split(' ').any(|word| word == first), "{:?}: {first}", spec.action);
        }
    }

    #[test]
    fn case_counts() {
        assert_ne!(Action::of(Key::Char('g')), Action::of(Key::Char('G')));
        assert_eq!(Action::of(Key::Char('Q')), None);
    }
}
