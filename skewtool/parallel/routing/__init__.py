"""Routes: where the lookups of a batch go, and the exchange of rows along them."""

from skewtool.parallel.routing.fixed_capacity_route import FixedCapacityRoute
from skewtool.parallel.routing.route import Route

__all__ = ["FixedCapacityRoute", "Route"]
