"""What advice is worth, as an estimate: GPU-hours that are free for others, watts, and money where prices are known."""

from fnmatch import fnmatchcase

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Savings

HOURS = 24.0


def savings(config: RightsizingConfig, model: str | None, hours_per_day: float, watts: float | None = None) -> Savings:
    """Of GPUs of that model. Nothing is made up: without a price of the model GPU-hours have none, nor have all."""
    price = 0.0 if hours_per_day == 0 else price_of(config, model)
    power = watts * HOURS / 1000 * config.electricity_price if watts and config.electricity_price else 0.0
    money = None if price is None else hours_per_day * price + power
    is_priced = money is not None and (hours_per_day > 0 or power > 0)
    return Savings(
        gpu_hours_per_day=hours_per_day,
        watts=watts,
        money_per_day=money if is_priced else None,
        currency=config.currency if is_priced else None,
    )


def price_of(config: RightsizingConfig, model: str | None) -> float | None:
    """Of an hour, by the first pattern that fits the model's name."""
    if model is None:
        return None
    return next((price for pattern, price in config.prices.items() if fnmatchcase(model, pattern)), None)
