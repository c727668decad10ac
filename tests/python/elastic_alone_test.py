# SPDX-License-Identifier: Apache-2.0
"""The elastic loop in a world of one: steps, state, and what leaves its callbacks."""
import array
import gc
import traceback
import unittest

import regroup
from support import main


class Loop(unittest.TestCase):
    def setUp(self):
        self.loop = regroup.ElasticLoop()
        self.addCleanup(lambda: self.loop.close())  # A test may have made another one.

    def test_steps_are_committed_until_all_finish(self):
        weights, steps = array.array("d", [0]), []
        self.loop.register_state("weights", weights)

        def on_round(now):
            self.assertEqual((now.rank, now.world_size, now.step, now.first), (0, 1, 0, True))
            now.group.barrier()

        def on_step(step):
            steps.append((step.number, step.samples_begin))
            if step.number == 3:
                return step.finish()
            samples = step.take(5)
            self.assertEqual((samples, step.shard(samples)), (range(5 * step.number,
                                                                    5 * step.number + 5),) * 2)
            with step.section("data"):
                pass
            step.group.all_reduce(array.array("d", [1]))
            step.commit(lambda: weights.__setitem__(0, weights[0] + 1))
            return None

        self.assertEqual(self.loop.run(on_step, on_round=on_round), "finished")
        self.assertEqual((weights[0], steps), (3, [(0, 0), (1, 5), (2, 10), (3, 15)]))

    def test_values_are_reported_and_others_are_refused(self):
        class Scalar:  # As a tensor of PyTorch with one element.
            def detach(self):
                return 0.25

        def on_step(step):
            step.report("loss", 1)
            step.report("loss", Scalar())
            step.report("loss", float("nan"))
            for value in ("low", None, [1.0, 2.0]):
                with self.assertRaisesRegex(regroup.InvalidArgument, "the value is no number"):
                    step.report("loss", value)
            with self.assertRaisesRegex(regroup.InvalidArgument, "a to z"):
                step.report("Loss", 1)
            for number in range(7):
                step.report(f"value_{number}", number)
            with self.assertRaisesRegex(regroup.InvalidArgument, "8 values already"):
                step.report("ninth", 1)
            step.finish()

        self.assertEqual(self.loop.run(on_step), "finished")

    def test_training_goes_on_from_a_checkpoint(self):
        seen = []
        self.loop.resume_at(7, 70)

        def on_step(step):
            seen.append((step.number, step.samples_begin))
            step.finish()

        self.loop.run(on_step)
        self.assertEqual(seen, [(7, 70)])

    def run_and_catch(self, on_step=lambda step: step.finish(), **callbacks):
        try:
            self.loop.run(on_step, **callbacks)
        except BaseException as raised:
            return raised
        raise AssertionError("nothing was raised")

    def test_exception_of_a_callback_leaves_run_with_its_traceback_and_its_cause(self):
        def faulty(*_):
            try:
                raise KeyError("inner")
            except KeyError as inner:
                raise ZeroDivisionError("mine") from inner

        raised = self.run_and_catch(faulty)
        self.assertIsInstance(raised, ZeroDivisionError)
        self.assertIsInstance(raised.__cause__, KeyError)
        self.assertIn("in faulty", "".join(traceback.format_tb(raised.__traceback__)))
        self.loop.close()
        for callbacks in ({"on_step": lambda step: step.commit(faulty)}, {"on_round": faulty}):
            self.loop = regroup.ElasticLoop()
            self.assertIsInstance(self.run_and_catch(**callbacks), ZeroDivisionError)
            self.loop.close()
        self.loop = regroup.ElasticLoop()

    def test_exits_and_interrupts_leave_run(self):
        for kind in (SystemExit, KeyboardInterrupt):
            def on_step(step, kind=kind):
                raise kind()

            self.assertIsInstance(self.run_and_catch(on_step), kind)
            self.loop.close()
            self.loop = regroup.ElasticLoop()

    def test_failed_call_leaves_run_as_itself(self):
        failure = self.run_and_catch(lambda step: step.group.broadcast(bytearray(1), root=5))
        self.assertIsInstance(failure, regroup.InvalidArgument)
        self.assertIn("broadcast", traceback.format_tb(failure.__traceback__)[-3] +
                      "".join(traceback.format_tb(failure.__traceback__)))

    def test_step_without_an_end_is_refused(self):
        failure = self.run_and_catch(lambda step: None)
        self.assertIsInstance(failure, regroup.InvalidArgument)
        self.assertIn("without commit(), update() or finish()", str(failure))

    def test_step_and_group_are_refused_when_they_are_over(self):
        kept = []

        def on_step(step):
            kept.extend([step, step.group])
            step.finish()

        self.loop.run(on_step)
        self.loop.close()
        for call in (kept[0].finish, kept[1].barrier):
            with self.assertRaises(regroup.InvalidArgument):
                call()

    def test_wrong_registrations_are_refused(self):
        for arguments in ({}, {"save": bytes}, {"tensor": bytearray(1), "load": print}):
            with self.assertRaisesRegex(regroup.InvalidArgument, "a tensor, or save and load"):
                self.loop.register_state("x", **arguments)
        with self.assertRaisesRegex(regroup.InvalidArgument, "read-only"):
            self.loop.register_state("x", b"abc")

    def test_registered_memory_lives_as_long_as_the_loop(self):
        memory = bytearray(4)
        self.loop.register_buffer("memory", memory)
        gc.collect()
        with self.assertRaises(BufferError):
            memory.clear()
        self.loop.close()
        memory.clear()


main()
