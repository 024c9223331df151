//! Where operations go.

use obol_smr::Operation;

/// Takes the operations that batches make: the store.
pub(super) trait OperationSink {
    /// Whether it takes no operation at present.
    fn is_busy(&self) -> bool;
    /// Begins an operation; returns its number. `None` if the store cannot take it.
    fn begin(&mut self, operation: Operation) -> Option<u64>;
}
