"""Skew of layouts: loads and imbalance on average and in every replayed step, and what they mean."""

from skewtool.skew.capacity import route_capacity
from skewtool.skew.frequencies import hottest_share, rank_frequency_slope
from skewtool.skew.meaning import WHERE_SKEW_DOES_NOT_MATTER
from skewtool.skew.measure import BASELINES, HIDDEN, LayoutSkew, Quantiles, SkewReport, measure_skew
from skewtool.skew.plan import LayoutPlan, Plan, plan

__all__ = [
    "BASELINES",
    "HIDDEN",
    "WHERE_SKEW_DOES_NOT_MATTER",
    "LayoutPlan",
    "LayoutSkew",
    "Plan",
    "Quantiles",
    "SkewReport",
    "hottest_share",
    "measure_skew",
    "plan",
    "rank_frequency_slope",
    "route_capacity",
]
