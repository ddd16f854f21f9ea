//! Graphs: launches that the driver was shown once, and that one call then gives to the stream as a whole.

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use super::{Arg, Failure, Grid, Kernel, Stream, failed};

/// Launches, each after the one before.
pub(in crate::probe) struct Graph {
    graph: CudaGraph,
    /// Keeps the kernels loaded.
    _kernels: Vec<Kernel>,
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
        self.record(vec![kernel.clone()], |stream| stream.launch_times(nodes, kernel, grid, args))
    }

    /// Makes a graph of what `work` gives to the stream, which is `kernels`, instead of doing it. What the arguments
    /// point to has to outlive it.
    ///
    /// # Errors
    /// Those of `work`, or the driver's.
    pub(in crate::probe) fn record(
        &self,
        kernels: Vec<Kernel>,
        work: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> Result<Graph, Failure> {
        let what = "recording a graph";
        // Only of this thread: the one that hears of a stop must not break the recording.
        self.raw().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed(what))?;
        let given = work(self);
        // Ends in any case: a stream that records does nothing else.
        let graph = self.raw().end_capture(CUgraphInstantiate_flags(0)).map_err(failed(what));
        given?;
        let graph = graph?.ok_or_else(|| Failure::Failed(format!("{what} did not work: there is none")))?;
        graph.upload().map_err(failed("loading a graph"))?;
        Ok(Graph { graph, _kernels: kernels })
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
