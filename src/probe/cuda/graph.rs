//! Graphs: launches that the driver was shown once, and that one call then gives to the stream as a whole.

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use super::{Arg, Failure, Grid, Kernel, Stream, failed};

/// Launches of one kernel, each after the one before.
pub(in crate::probe) struct Graph {
    graph: CudaGraph,
    /// Keeps the kernel loaded.
    _kernel: Kernel,
}

impl Stream {
    /// Makes a graph of `nodes` launches, one after the other. What its arguments point to has to outlive it.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn graph(
        &self,
        nodes: u32,
        kernel: &Kernel,
        grid: Grid,
        args: &[Arg],
    ) -> Result<Graph, Failure> {
        let what = "recording a graph";
        // Only of this thread: the one that hears of a stop must not break the recording.
        self.raw().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed(what))?;
        let given = self.launch_times(nodes, kernel, grid, args);
        // Ends in any case: a stream that records does nothing else.
        let graph = self.raw().end_capture(CUgraphInstantiate_flags(0)).map_err(failed(what));
        given?;
        let graph = graph?.ok_or_else(|| Failure::Failed(format!("{what} did not work: there is none")))?;
        graph.upload().map_err(failed("loading a graph"))?;
        Ok(Graph { graph, _kernel: kernel.clone() })
    }
}

impl Graph {
    /// Gives the whole of it to its stream, `n` times.
    ///
    /// # Errors
    /// The driver's; what goes wrong while it runs is told by a later call.
    pub(in crate::probe) fn launch_times(&self, n: u32) -> Result<(), Failure> {
        (0..n).try_for_each(|_| self.graph.launch()).map_err(failed("launching a graph"))
    }
}
