"""One module a tool: its result model, its description and its handler."""
