# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From an observation to the plan: which components have to change, why, and what that takes.

Pure: nothing here reaches a node. The action ``plan`` calls them in this order, with what the node's package index says in between:

    request           what is asked, beside the wish
    draft             the stack, and what is not as wished      expectations, findings, upgrading
    index_query       what the index does not have,             availability, security_floors
                      and what it has to be asked once more
    python_query      which wheels the Python index has         wheel_tags
    finish            the plan                                  proof, refusals, space, notices, sealing, rescue
    work              what each role does first, and the steps  measurements, preflight, removal_work
                      that only the changed node can decide
    document          its keys, its verdict, the plan as text
    removal           the plan that takes everything back
"""
