"""Which treatment kept patients alive longer? A Cox model with bootstrap confidence intervals, farmed out over MPI.

    mpiexec -n 4 python hazards.py trial.csv [replicates]

Rank 0 reads the trial's records and draws the bootstrap samples; the other ranks get the patients of a sample as the
lines of the file, fit the model and send the coefficients back. An ordinary mpi4py program: it knows nothing of
Gambeson. Every sample is drawn from its own seed, so the result does not depend on who computed what.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

COVARIATES = {"treat": 1, "age": 10, "karnof": 10, "drugs": 1, "symptom": 1, "cd40": 100}
"""Column -> by how much it is varied in the hazard ratio: ten years of age, a hundred CD4 cells."""
LABELS = {
    "treat": "a newer treatment",
    "age": "10 years older",
    "karnof": "10 points fitter",
    "drugs": "injected drugs",
    "symptom": "symptoms",
    "cd40": "100 CD4 cells more",
}
WORK, STOP, RESULT = 1, 2, 3


def table(header, lines):
    """Times, events and covariates of the patients in `lines`."""
    place = {name: index for index, name in enumerate(header)}
    columns = [place["days"], place["cens"], *(place[name] for name in COVARIATES)]
    values = np.array([[float(fields[column]) for column in columns] for fields in (line.split(",") for line in lines)])
    return values[:, 0], values[:, 1], values[:, 2:] / np.array(list(COVARIATES.values()), float)


def cox(times, events, covariates):
    """Coefficients of a proportional hazards model, by Newton's method on Breslow's partial likelihood."""
    order = np.argsort(-times, kind="stable")
    times, events, covariates = times[order], events[order], covariates[order] - covariates.mean(axis=0)
    # With falling times, those at risk at a time are all up to the last one with that time.
    at_risk = np.searchsorted(-times, -times, side="right") - 1
    pairs = covariates[:, :, None] * covariates[:, None, :]
    beta = np.zeros(covariates.shape[1])
    for _ in range(20):
        weight = np.exp(covariates @ beta)
        total = np.cumsum(weight)[at_risk]
        mean = np.cumsum(weight[:, None] * covariates, axis=0)[at_risk] / total[:, None]
        square = np.cumsum(weight[:, None, None] * pairs, axis=0)[at_risk] / total[:, None, None]
        gradient = (events[:, None] * (covariates - mean)).sum(axis=0)
        hessian = (events[:, None, None] * (square - mean[:, :, None] * mean[:, None, :])).sum(axis=0)
        step = np.linalg.solve(hessian, gradient)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    return beta


def manager(world, path, replicates):
    with Path(path).open() as file:
        header, *patients = [line.strip().replace('"', "") for line in file if line.strip()]
    header = header.split(",")
    world.bcast(header)
    fitted = np.zeros((replicates + 1, len(COVARIATES)))

    def sample(number):
        """The patients themselves first, then as many drawn with replacement."""
        if number == 0:
            return patients
        return [patients[k] for k in np.random.default_rng(number).integers(len(patients), size=len(patients))]

    waiting, busy = iter(range(replicates + 1)), 0
    status = MPI.Status()
    for worker in range(1, world.size):
        number = next(waiting, None)
        if number is None:
            world.send(None, worker, STOP)
        else:
            world.send((number, "\n".join(sample(number))), worker, WORK)
            busy += 1
    while busy:
        number, coefficients = world.recv(source=MPI.ANY_SOURCE, tag=RESULT, status=status)
        fitted[number] = coefficients
        following = next(waiting, None)
        if following is None:
            world.send(None, status.source, STOP)
            busy -= 1
        else:
            world.send((following, "\n".join(sample(following))), status.source, WORK)
    low, high = np.percentile(fitted[1:], [2.5, 97.5], axis=0)
    print(f"{len(patients)} patients, {replicates} bootstrap samples, {world.size - 1} workers")
    print(f"{'':22}{'hazard ratio':>14}   95 % interval")
    for name, beta, below, above in zip(COVARIATES, fitted[0], low, high, strict=True):
        print(f"{LABELS[name]:22}{np.exp(beta):14.6f}   {np.exp(below):.6f} - {np.exp(above):.6f}")


def worker(world):
    header = world.bcast(None)
    status = MPI.Status()
    while True:
        work = world.recv(source=0, tag=MPI.ANY_TAG, status=status)
        if status.tag == STOP:
            return
        number, text = work
        world.send((number, cox(*table(header, text.split("\n")))), 0, RESULT)


def main():
    world = MPI.COMM_WORLD
    if world.size < 2:
        sys.exit("hazards.py needs two ranks or more: one hands out work, the others do it")
    if world.rank == 0:
        manager(world, sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200)
    else:
        worker(world)


if __name__ == "__main__":
    main()
