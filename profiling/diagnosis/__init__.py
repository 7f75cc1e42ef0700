"""Why a kernel is slow, down to the line and the compiler's pass, and which edit makes it faster."""
