"""Facts about a compiled launch, read from the text that the compiler left."""
