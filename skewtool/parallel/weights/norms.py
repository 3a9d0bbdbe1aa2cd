"""`grad_norm` and `clip_grad_norm_` of a model with sharded tables: each row counts once, whatever the map.

Rows behind `ShardedModule.counted_rows` are copies or empty and are left out; a tied parameter counts once; parameters
that are not sharded are the same on every rank and count once.
"""

import torch
from torch import Tensor, nn

from skewtool.errors import SkewtoolError
from skewtool.parallel.collectives import all_gather
from skewtool.parallel.groups import Group, device_of
from skewtool.parallel.sharded_module import ShardedModule

__all__ = ["clip_grad_norm_", "grad_norm"]


@torch.no_grad()
def grad_norm(model: nn.Module, norm_type: float = 2.0) -> Tensor:
    """The p-norm of all gradients of a model, sharded or not, each row counted once: a float64 scalar, for `norm_type` p
    (above 0, also infinity). NaN and infinities show in it.

    The same on every rank, provided replicated gradients are. Gradients of copies must be summed before
    (`synchronize_copies`). 16-bit gradients are summed in float32; parameters without a gradient count nothing.

    Collectives: one all_gather of 8 bytes per group that sharded modules name, whether or not they have gradients.
    Unsharded equivalent: ``torch.nn.utils.get_total_norm([p.grad for p in model.parameters()], norm_type)``.
    Errors: SkewtoolError for a norm_type that is not above 0.
    """
    if not norm_type > 0:
        raise SkewtoolError(f"norm_type must be above 0, got {norm_type}")
    replicated, by_group = _counted_gradients(model)
    norms: list[Tensor] = []
    for group, gradients in by_group.items():
        norms += all_gather(_norm(gradients, norm_type).to(device_of(group)), group, "norms").unbind()
    return _norm_of_norms([*norms, _norm(replicated, norm_type)], norm_type)


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Scales all gradients in place, those of copies too, so that `grad_norm` is at most `max_norm`; returns the norm
    before, a float64 scalar.

    As ``torch.nn.utils.clip_grad_norm_(model.parameters(), ...)`` of the unsharded model: the factor is
    ``max_norm / (norm + 1e-6)``, at most 1. Collectives: those of `grad_norm`. Errors: RuntimeError, on every rank, for a
    norm that is not finite, if `error_if_nonfinite`.
    """
    total = grad_norm(model, norm_type)
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError(
            f"the gradients' norm of order {norm_type} is {total.item()}, so they cannot be clipped; "
            "give error_if_nonfinite=False to scale them all the same"
        )
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, total)
    return total


def _counted_gradients(model: nn.Module) -> tuple[list[Tensor], dict[Group, list[Tensor]]]:
    """The gradients of replicated parameters, and the counted rows of those of sharded ones by group."""
    by_group: dict[Group, list[Tensor]] = {}
    sharded = set()
    for module in model.modules():
        if isinstance(module, ShardedModule):
            gradients = by_group.setdefault(module.group, [])
            for name, rows in module.counted_rows().items():
                parameter = module.get_parameter(name)
                if parameter not in sharded and parameter.grad is not None:
                    gradients.append(parameter.grad[:rows])
                sharded.add(parameter)
    return [each.grad for each in model.parameters() if each.grad is not None and each not in sharded], by_group


def _norm(gradients: list[Tensor], norm_type: float) -> Tensor:
    norms = [
        torch.linalg.vector_norm(each, norm_type, dtype=torch.promote_types(each.dtype, torch.float32)).double()
        for each in gradients
        if each.numel()
    ]
    return _norm_of_norms(norms, norm_type) if norms else torch.zeros((), dtype=torch.float64)


def _norm_of_norms(norms: list[Tensor], norm_type: float) -> Tensor:
    total: Tensor = torch.linalg.vector_norm(torch.stack([each.to(norms[0].device) for each in norms]), norm_type)
    return total
