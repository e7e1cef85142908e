"""The probe's 2,430 fits side by side, against the same fits one at a time."""

import torch
from torch import Tensor, nn

from abalone.evaluation.gridfits import GridFits, Setting, shuffled_batches, starting_weights
from abalone.evaluation.probe import LinearProbe
from benchmarks.measure import Line, best_seconds, show

DOCUMENTS, VALIDATION, DIM, LABELS = 42_500, 5_000, 768, 54
PLAIN_STEPS, OUR_STEPS = 60, 12  # of which the whole is extrapolated


def plant(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return features and linearly separable labels: the first common, the last rare."""
    X = torch.randn(DOCUMENTS, DIM, device=device)
    scores = X @ torch.randn(DIM, LABELS, device=device) / DIM**0.5
    return X, scores > torch.linspace(0.5, 2.5, LABELS, device=device)


def one_fit(X: Tensor, y: Tensor, setting: Setting, batches: list[Tensor], total: int) -> None:
    """Run the first of `total` steps of one plain fit: one label, one setting, one start."""
    model = nn.Linear(X.shape[1], 1, device=X.device)
    nn.init.xavier_uniform_(model.weight)
    optimiser = torch.optim.AdamW(model.parameters(), lr=setting.learning_rate, weight_decay=setting.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / total)
    for rows in batches:
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        schedule.step()


def main() -> None:
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    X, Y = plant(device)
    y = Y[:, LABELS // 2].float()
    probe = LinearProbe(device=device)
    total = probe.epochs * DOCUMENTS // probe.batch_size
    fits = len(probe.grid) * probe.initialisations * LABELS
    generator = torch.Generator().manual_seed(0)
    start = starting_weights(probe.initialisations, LABELS, DIM, generator)
    batches = list(shuffled_batches(DOCUMENTS, probe.batch_size, PLAIN_STEPS, generator, device))
    side_by_side = GridFits(X, Y, probe.grid, start, probe.batch_size, total)

    def plain() -> None:
        one_fit(X, y, probe.grid[0], batches, total)
        if on_gpu:
            torch.cuda.synchronize()

    def some_steps() -> None:
        side_by_side.train(iter(batches[:OUR_STEPS]))

    def everything() -> None:
        probe.fit(X, Y, X[:VALIDATION], Y[:VALIDATION])

    if on_gpu:
        of_one, ours = best_seconds(plain, everything, repeat=2)
        measured, promised = "ours: the whole fit, choice of settings included", "≥ 100×, < 5 s"
    else:
        of_one, of_steps = best_seconds(plain, some_steps, repeat=7)
        ours = of_steps / OUR_STEPS * total
        measured, promised = f"ours: extrapolated from {OUR_STEPS} steps", "≥ 10×"
    loop = of_one / PLAIN_STEPS * total * fits
    show(
        f"Linear probe on {device.type}: {fits:,} fits of {DOCUMENTS:,} × {DIM}, {probe.epochs} epochs, "
        f"batch {probe.batch_size}\nplain: torch.optim.AdamW fit by fit, extrapolated from {PLAIN_STEPS} steps of one; "
        f"{measured}",
        [Line("all fits", f"{loop:,.0f} s", f"{ours:,.1f} s", f"{loop / ours:.0f}×", promised)],
    )


if __name__ == "__main__":
    main()
