"""What tune_kernel does on this machine: variants compiled side by side, prepared ahead, and raced one by one."""
