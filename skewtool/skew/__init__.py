"""Skew of layouts: loads and imbalance on average and in every replayed step, and what they mean."""

from skewtool.skew.ageing import Ageing, ageing
from skewtool.skew.capacity import route_capacity
from skewtool.skew.copy_gradients import copy_buffers, copy_traffic
from skewtool.skew.cost import Cost, LayoutCost, Moved, cost
from skewtool.skew.embedding_buffers import Buffers, embedding_buffers
from skewtool.skew.embedding_traffic import embedding_traffic
from skewtool.skew.frequencies import hottest_share, rank_frequency_slope
from skewtool.skew.head_buffers import head_buffers
from skewtool.skew.head_traffic import LossOptions, decoding_traffic, head_traffic
from skewtool.skew.link import Link, read_calibration
from skewtool.skew.meaning import WHERE_SKEW_DOES_NOT_MATTER
from skewtool.skew.measure import BASELINES, HIDDEN, LayoutSkew, Quantiles, SkewReport, measure_skew
from skewtool.skew.plan import LayoutPlan, Plan, plan
from skewtool.skew.table_sizes import TableSizes
from skewtool.skew.traffic import Traffic

__all__ = [
    "BASELINES",
    "HIDDEN",
    "WHERE_SKEW_DOES_NOT_MATTER",
    "Ageing",
    "Buffers",
    "Cost",
    "LayoutCost",
    "LayoutPlan",
    "LayoutSkew",
    "Link",
    "LossOptions",
    "Moved",
    "Plan",
    "Quantiles",
    "SkewReport",
    "TableSizes",
    "Traffic",
    "ageing",
    "copy_buffers",
    "copy_traffic",
    "cost",
    "decoding_traffic",
    "embedding_buffers",
    "embedding_traffic",
    "head_buffers",
    "head_traffic",
    "hottest_share",
    "measure_skew",
    "plan",
    "rank_frequency_slope",
    "read_calibration",
    "route_capacity",
]
