"""The search over what a kernel file already exposes: its knobs, variants, what is left out, and what is tried next."""
