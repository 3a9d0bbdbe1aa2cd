"""Routes: where the lookups of a batch go, and the exchange of rows along them."""

from skewtool.parallel.routing.fixed_capacity_route import FixedCapacityRoute
from skewtool.parallel.routing.hidden_route import HiddenRoute
from skewtool.parallel.routing.route import Route

__all__ = ["FixedCapacityRoute", "HiddenRoute", "Route"]
