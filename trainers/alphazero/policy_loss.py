"""The policy's loss on a CPU: a linear head that is asked for legal actions only.

A position has some seven legal actions of 303, so most of a full head's work would be masked out
again. One kernel finds logits, loss and gradients of the legal ones, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pylos_env._jit import jit_sums
from pylos_env.kernel import MAX_LEGAL
from trainers.search.tree import Floats


def policy_loss(
    features: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, policy: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-entropy and entropy over legal actions, means over the batch.

    `features` [batch, width] are the inputs of the head, `weight` and `bias` its own; `mask` and
    `policy` are [batch, 303].
    """
    found: Tensor = _PolicyLoss.apply(  # type: ignore[no-untyped-call]
        features.float(), weight, bias, mask, policy
    )
    loss, entropy = found.unbind()
    return loss, entropy.detach()


class _PolicyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, features: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, policy: Tensor
    ) -> Tensor:
        gradients = [torch.zeros_like(tensor) for tensor in (features, weight, bias)]
        loss, entropy = _write_gradients(
            features.detach().numpy(),
            weight.detach().numpy(),
            bias.detach().numpy(),
            mask.numpy(),
            policy.numpy(),
            *(gradient.numpy() for gradient in gradients),
        )
        context.save_for_backward(*gradients)
        return features.new_tensor([loss, entropy])

    @staticmethod
    def backward(context: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        scale = given[0][0]  # the entropy is only shown
        of_features, of_weight, of_bias = context.saved_tensors
        return of_features * scale, of_weight * scale, of_bias * scale, None, None


@jit_sums
def _write_gradients(
    features: Floats,
    weight: Floats,
    bias: Floats,
    mask: npt.NDArray[np.int8],
    policy: Floats,
    of_features: Floats,
    of_weight: Floats,
    of_bias: Floats,
) -> tuple[float, float]:
    """The mean loss and entropy of a batch, and the loss's gradients."""
    batch, width = features.shape
    legal = np.empty(MAX_LEGAL, dtype=np.int64)
    logits = np.empty(MAX_LEGAL, dtype=np.float32)
    share = np.float32(1) / np.float32(batch)
    loss = entropy = 0.0
    for row in range(batch):
        seen, back = features[row], of_features[row]
        count = 0
        largest = np.float32(-np.inf)
        for action in range(mask.shape[1]):
            if mask[row, action]:
                logit = bias[action]
                weights = weight[action]
                for column in range(width):
                    logit += seen[column] * weights[column]
                legal[count], logits[count] = action, logit
                largest = max(largest, logit)
                count += 1
        total = np.float32(0)
        for number in range(count):
            total += np.exp(logits[number] - largest)
        log_total = largest + np.log(total)
        wanted = np.float32(0)
        for number in range(count):
            wanted += policy[row, legal[number]]
        for number in range(count):
            action = legal[number]
            log_share = logits[number] - log_total
            likely = np.exp(log_share)
            loss -= policy[row, action] * log_share
            entropy -= likely * log_share
            gradient = share * (wanted * likely - policy[row, action])
            of_bias[action] += gradient
            weights, of_weights = weight[action], of_weight[action]
            for column in range(width):
                back[column] += gradient * weights[column]
                of_weights[column] += gradient * seen[column]
    return loss / batch, entropy / batch
