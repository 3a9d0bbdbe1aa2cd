"""`ShardedModule`: a module of whose parameters each rank of a group holds another part."""

from torch import nn

from skewtool.parallel.groups import Group

__all__ = ["ShardedModule"]


class ShardedModule(nn.Module):
    """Base of all modules here. What is not named by `counted_rows` is the same on every rank (replicated)."""

    def __init__(self, group: Group = None) -> None:
        super().__init__()
        self.group = group

    def counted_rows(self) -> dict[str, int]:
        """Its own sharded parameters by name, each with the number of its first rows that no other rank holds.

        Rows behind those are copies, or empty: norms and saved tables leave them out.
        """
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, object]) -> "ShardedModule":
        # Process groups cannot be copied, and must not be.
        memo[id(self.group)] = self.group
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        from copy import deepcopy

        copied.__dict__.update(deepcopy(self.__dict__, memo))
        return copied
