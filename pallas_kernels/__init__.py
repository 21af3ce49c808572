"""Mixture-of-experts kernels for JAX: routing, dispatch, the sparse SwiGLU and combine. Imports jax alone."""

from pallas_kernels.choice import IMPLEMENTATIONS as IMPLEMENTATIONS
from pallas_kernels.choice import best as best
from pallas_kernels.expert_ffn import ExpertWeights as ExpertWeights
from pallas_kernels.expert_ffn import expert_ffn as expert_ffn
from pallas_kernels.grouped_matmul import grouped_matmul as grouped_matmul
from pallas_kernels.moves import combine as combine
from pallas_kernels.moves import dispatch as dispatch
from pallas_kernels.routing import Plan as Plan
from pallas_kernels.routing import route as route
from pallas_kernels.settings import MEASURED as MEASURED
from pallas_kernels.settings import Settings as Settings
from pallas_kernels.settings import settings as settings
