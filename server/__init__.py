"""MCP tools, prompts, resources and the command line."""
