"""Mixture-of-experts kernels for JAX: routing, dispatch, the sparse SwiGLU and combine. Imports jax alone."""

from pallas_kernels.expert_ffn import IMPLEMENTATIONS as IMPLEMENTATIONS
from pallas_kernels.expert_ffn import ExpertWeights as ExpertWeights
from pallas_kernels.expert_ffn import expert_ffn as expert_ffn
from pallas_kernels.routing import Plan as Plan
from pallas_kernels.routing import route as route
