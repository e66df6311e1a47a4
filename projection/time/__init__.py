"""Time of one iteration: chunks, the pipeline, data parallelism, the optimizer, their sum."""
