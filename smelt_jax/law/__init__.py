"""Laws of loss: as values, fitted, and put to use. numpy and scipy alone."""
