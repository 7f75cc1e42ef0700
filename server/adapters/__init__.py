"""Turns existing artefacts into a kernel file and a task file: text and syntax trees only, nothing of theirs is run."""
