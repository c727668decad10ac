# SPDX-License-Identifier: Apache-2.0
import threading
import unittest

import regroup
from support import DEADLINE_S, main


class Store(unittest.TestCase):
    def setUp(self):
        self.store = regroup.Store.local(timeout=DEADLINE_S)

    def test_values_are_bytes_with_nuls(self):
        self.store.set("key", b"a\0b")
        self.store.set("text", "ä")
        self.store.set("view", memoryview(b"123"))
        self.store.set("empty", b"")
        self.assertEqual([self.store.get(key) for key in ("key", "text", "view", "empty")],
                         [b"a\0b", "ä".encode(), b"123", b""])

    def test_numbers_are_added_up(self):
        self.assertEqual([self.store.add("n"), self.store.add("n", -5)], [1, -4])
        self.assertEqual(self.store.get("n"), b"-4")

    def test_keys_are_checked_and_deleted(self):
        self.store.set("a", "1")
        self.assertTrue(self.store.check(["a"]))
        self.assertFalse(self.store.check(["a", "b"]))
        self.assertTrue(self.store.delete("a"))
        self.assertFalse(self.store.delete("a"))

    def test_compare_set_returns_the_value_afterwards(self):
        self.assertEqual(self.store.compare_set("k", "", "one"), b"one")
        self.assertEqual(self.store.compare_set("k", "none", "two"), b"one")
        self.assertEqual(self.store.compare_set("k", "one", "two"), b"two")

    def test_get_waits_for_another_thread(self):
        results = []
        reader = threading.Thread(target=lambda: results.append(self.store.get("late")))
        reader.start()
        self.store.set("late", "here")
        reader.join(DEADLINE_S)
        self.assertEqual(results, [b"here"])

    def test_wait_ends_at_its_deadline(self):
        with self.assertRaisesRegex(TimeoutError, "never") as caught:
            self.store.wait(["never"], timeout=0.01)
        self.assertIsInstance(caught.exception, regroup.DeadlineExceeded)

    def test_wrong_arguments_are_refused(self):
        for call, text in ((lambda: self.store.set("a\0b", ""), "NUL"),
                           (lambda: self.store.check("abc"), "list of keys"),
                           (lambda: self.store.wait(["a"], timeout=0), "timeout is 0"),
                           (lambda: regroup.Store.connect("localhost", 70000), "port is 70000")):
            with self.assertRaisesRegex(regroup.InvalidArgument, text):
                call()

    def test_closed_store_says_so(self):
        self.store.close()
        self.store.close()
        with self.assertRaisesRegex(regroup.InvalidArgument, "store is closed"):
            self.store.get("a")


main()
