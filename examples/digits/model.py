# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits of 8 by 8 pixels, from scikit-learn, and a small network that reads them."""
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def data_sets():
    """1437 digits to train with, and 360 to test with."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return TensorDataset(images[360:], labels[360:]), TensorDataset(images[:360], labels[:360])


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(128, 10))


def right_answers(model, test):
    """How many of the test's digits the model reads well."""
    model.eval()
    images, labels = test.tensors
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    model.train()
    return f"{right} of {len(labels)} digits"


def sum_of(model):
    """A number that differs if a bit of a parameter differs, most likely."""
    return f"{sum(p.detach().double().abs().sum().item() for p in model.parameters()):.12f}"
