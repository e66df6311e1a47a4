"""The pipelines that chain tasks, the Prefect shell around them, and the command line."""
