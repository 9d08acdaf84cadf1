//! A libfabric provider that seals every message between the processes of a parallel job.
