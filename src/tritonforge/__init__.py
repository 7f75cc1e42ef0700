"""Makes Triton kernels faster with evidence: an MCP tool server that measures, remembers and decides."""

__version__ = "0.1.0"
