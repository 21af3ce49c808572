"""One figure a file. A kind of figure is a module here with a function of its name: `kind(arms, file)`."""

KINDS = ('loss_flops',)
