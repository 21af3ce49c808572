"""One figure a file, with a function of its name that draws it into a file. `asked` has them all."""
