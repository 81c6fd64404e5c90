"""One module for each family; whatever lies here and has CELLS is found."""
