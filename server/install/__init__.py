"""`install` and `uninstall`: our entry in the configuration of other people's MCP clients."""
