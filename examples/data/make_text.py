#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the text that examples/train_zero learns: short tales made by a small grammar.

    python3 make_text.py > tales.txt

The text is frozen in the repository beside this script, so that losses stay comparable; the script
is here to show where it comes from. Its random numbers come from the recurrence below and not from
Python's `random`, whose choice() may change between releases.
"""

import sys

SIZE_BYTES = 160_000
SEED = 20240229


class Dice:
    """A 64-bit linear congruential generator (Knuth's MMIX constants); its high bits are used."""

    def __init__(self, seed):
        self._state = seed

    def below(self, limit):
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def pick(self, choices):
        return choices[self.below(len(choices))]


PEOPLE = {
    "Ada": "she", "Bruno": "he", "Clara": "she", "Dario": "he", "Edith": "she", "Felix": "he",
    "Greta": "she", "Hugo": "he", "Ines": "she", "Jonas": "he", "Karin": "she", "Leo": "he",
}
TRADES = ["mason", "carter", "miller", "gardener", "weaver", "potter", "cooper", "smith", "baker"]
PLACES = [
    "the village square", "the old mill", "the river bank", "the orchard wall", "the chapel yard",
    "the market hall", "the stone bridge", "the upper quarry", "the garden gate", "the north road",
]
THINGS = [
    "stone", "slab", "barrow", "ladder", "bucket", "lantern", "rope", "hammer", "chisel", "basket",
    "plank", "lever",
]
QUALITIES = ["flat", "grey", "heavy", "smooth", "broken", "narrow", "wide", "rough", "wet", "new"]
COUNTS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"]
TIMES = [
    "In the morning", "At noon", "Before dusk", "After the rain", "On market day",
    "In early spring", "Late in autumn", "When the bell rang",
]
MOTIONS = ["carried", "dragged", "rolled", "brought", "hauled", "wheeled"]
WORKS = ["laid", "turned", "measured", "lifted", "washed", "marked", "levelled"]
SAYINGS = [
    "A path is made one stone at a time",
    "Set the first one well and the rest will follow",
    "Count them before you carry them",
    "What is level in the morning is level at night",
    "Leave no gap wider than a finger",
    "If one of them is cracked, the rain will find it",
    "Write down where we stopped, so that tomorrow we can go on from there",
]
MOODS = ["glad", "tired", "patient", "proud", "silent", "cheerful", "careful"]
ENDINGS = [
    "and the path was one row longer",
    "and nobody spoke of it again",
    "and the children ran across it at once",
    "and that was the end of the day's work",
    "and the water ran off it as it should",
]


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def sentence(dice, name):
    pronoun = PEOPLE[name]
    form = dice.below(8)
    if form == 0:
        return (f"{dice.pick(TIMES)} {name} {dice.pick(MOTIONS)} {dice.pick(COUNTS)} "
                f"{dice.pick(QUALITIES)} {dice.pick(THINGS)}s to {dice.pick(PLACES)}.")
    if form == 1:
        return (f"{name} {dice.pick(WORKS)} {article(dice.pick(QUALITIES))} {dice.pick(THINGS)} "
                f"beside {dice.pick(PLACES)}, {dice.pick(ENDINGS)}.")
    if form == 2:
        return f'"{dice.pick(SAYINGS)}," said {name}, for {pronoun} was {dice.pick(MOODS)}.'
    if form == 3:
        other = dice.pick([person for person in PEOPLE if person != name])
        return (f"{name} gave the {dice.pick(THINGS)} to {other}, and {PEOPLE[other]} "
                f"{dice.pick(MOTIONS)} it to {dice.pick(PLACES)}.")
    if form == 4:
        first, second = dice.below(9) + 1, dice.below(9) + 1
        return (f"There were {first} rows by {dice.pick(PLACES)} and {second} more behind it, "
                f"so {pronoun} counted {first + second}.")
    if form == 5:
        length = dice.pick(["long", "short"])
        return (f"The {dice.pick(QUALITIES)} {dice.pick(THINGS)} was too {length} "
                f"for {dice.pick(PLACES)}, so {pronoun} asked the {dice.pick(TRADES)} for another.")
    if form == 6:
        return (f"{dice.pick(TIMES)} the {dice.pick(TRADES)} and {name} {dice.pick(WORKS)} "
                f"the {dice.pick(THINGS)} together.")
    return f"Then {pronoun} rested at {dice.pick(PLACES)} and was {dice.pick(MOODS)}."


def tale(dice):
    name = dice.pick(list(PEOPLE))
    lines = [f"{name} was the {dice.pick(TRADES)} who lived near {dice.pick(PLACES)}."]
    lines += [sentence(dice, name) for _ in range(3 + dice.below(5))]
    return " ".join(lines)


def main():
    dice = Dice(SEED)
    text = ""
    while len(text) < SIZE_BYTES:
        text += tale(dice) + "\n"
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
