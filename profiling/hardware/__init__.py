"""What a GPU is: data-sheet catalogue, limits of its architecture, detection of what is present."""
