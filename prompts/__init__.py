"""The agent-facing texts: typed context in, Markdown out."""
