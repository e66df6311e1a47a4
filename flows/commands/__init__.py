"""The verbs, grouped by the question they answer; each imports what it needs when it runs."""
