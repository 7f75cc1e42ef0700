"""Where evaluations run: one contract, and what fulfils it."""
