//! A template whose values are guarded.
//!
//! The syntax tree of a template is rewritten with a [`Guard`](super::guard::Guard) around every
//! value that an expression makes and every value that is walked: operands of `~`, `in` and
//! comparisons, arguments of filters, tests and calls, keys, and printed values. Each match names
//! all kinds that the engine has, so that a new kind of expression or statement is not accepted
//! unnoticed. Statements that no chat template needs are rejected by name.

use minijinja::machinery::ast::{self, CallArg, Expr, Spanned, Stmt};

/// Names that the guards have in a rendering. No template can spell them.
pub(super) const VALUE: &str = " value";
/// As [`VALUE`], for a value that becomes part of another one.
pub(super) const PART: &str = " part";
/// As [`VALUE`], for a value that is printed.
pub(super) const PRINTED: &str = " printed";
/// The name of the text of a block until its filter is applied.
const CAPTURED: &str = " captured";

/// Filters that look at a value without walking it.
const BRIEF_FILTERS: &[&str] = &["length", "count", "first", "default", "d"];
/// Tests of the same kind.
const BRIEF_TESTS: &[&str] = &[
    "undefined",
    "defined",
    "none",
    "boolean",
    "odd",
    "even",
    "divisibleby",
    "number",
    "integer",
    "int",
    "float",
    "string",
    "sequence",
    "iterable",
    "mapping",
    "true",
    "false",
];

/// Makes a node with the kind and the source span of another.
macro_rules! node {
    ($of:ident::$kind:ident($node:ident) { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $of::$kind(again($node, ast::$kind { $($field $(: $value)?),* }))
    };
}

/// Returns the statements that do what a statement does, with guards.
///
/// # Errors
///
/// If the template has a tag that is not supported. The error is the tag.
pub(super) fn statement<'a>(stmt: &Stmt<'a>) -> Result<Vec<Stmt<'a>>, &'static str> {
    Ok(vec![match stmt {
        Stmt::Template(it) => node!(Stmt::Template(it) { children: statements(&it.children)? }),
        Stmt::EmitExpr(it) => node!(Stmt::EmitExpr(it) { expr: guard(PRINTED, expression(&it.expr)) }),
        // Text is printed like a value, so that a loop that prints it is bounded.
        Stmt::EmitRaw(it) => {
            let text = Expr::Const(again(it, ast::Const { value: it.raw.into() }));
            Stmt::EmitExpr(again(it, ast::EmitExpr { expr: guard(PRINTED, text) }))
        }
        Stmt::ForLoop(it) => node!(Stmt::ForLoop(it) {
            target: target(&it.target),
            iter: expression(&it.iter),
            filter_expr: it.filter_expr.as_ref().map(expression),
            recursive: it.recursive,
            body: statements(&it.body)?,
            else_body: statements(&it.else_body)?,
        }),
        Stmt::IfCond(it) => node!(Stmt::IfCond(it) {
            expr: expression(&it.expr),
            true_body: statements(&it.true_body)?,
            false_body: statements(&it.false_body)?,
        }),
        Stmt::WithBlock(it) => node!(Stmt::WithBlock(it) {
            assignments: it.assignments.iter().map(|(name, value)| (target(name), expression(value))).collect(),
            body: statements(&it.body)?,
        }),
        Stmt::Set(it) => Stmt::Set(again(it, assignment(&it.target, &it.expr))),
        Stmt::SetBlock(it) => match &it.filter {
            None => node!(Stmt::SetBlock(it) { target: target(&it.target), filter: None, body: statements(&it.body)? }),
            Some(filter) => {
                return Ok(vec![captured(it, &it.body)?, Stmt::Set(again(it, assignment(&it.target, filter)))]);
            }
        },
        Stmt::FilterBlock(it) => {
            let emit = ast::EmitExpr { expr: guard(PRINTED, expression(&it.filter)) };
            return Ok(vec![captured(it, &it.body)?, Stmt::EmitExpr(again(it, emit))]);
        }
        Stmt::Macro(it) => node!(Stmt::Macro(it) {
            name: it.name,
            args: it.args.iter().map(target).collect(),
            defaults: it.defaults.iter().map(expression).collect(),
            body: statements(&it.body)?,
        }),
        Stmt::Continue(it) => Stmt::Continue(again(it, ast::Continue)),
        Stmt::Break(it) => Stmt::Break(again(it, ast::Break)),
        Stmt::AutoEscape(_) => return Err("autoescape"),
        Stmt::Block(_) => return Err("block"),
        Stmt::Import(_) => return Err("import"),
        Stmt::FromImport(_) => return Err("from"),
        Stmt::Extends(_) => return Err("extends"),
        Stmt::Include(_) => return Err("include"),
        Stmt::CallBlock(_) => return Err("call"),
        Stmt::Do(_) => return Err("do"),
    }])
}

fn statements<'a>(all: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, &'static str> {
    Ok(all.iter().map(statement).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Returns an assignment. The values in a namespace are part of it.
fn assignment<'a>(to: &Expr<'a>, expr: &Expr<'a>) -> ast::Set<'a> {
    let expr = match to {
        Expr::Var(_) => expression(expr),
        _ => guard(PART, expression(expr)),
    };
    ast::Set { target: target(to), expr }
}

/// Returns the statement that keeps the text of a block under the name [`CAPTURED`].
///
/// The engine leaves the text on its stack for the block's filter, and a guard would come between
/// the two.
fn captured<'a, T>(block: &Spanned<T>, body: &[Stmt<'a>]) -> Result<Stmt<'a>, &'static str> {
    let target = Expr::Var(again(block, ast::Var { id: CAPTURED }));
    Ok(Stmt::SetBlock(again(block, ast::SetBlock { target, filter: None, body: statements(body)? })))
}

/// Returns a node with the source span of another.
fn again<T, U>(node: &Spanned<T>, new: U) -> Spanned<U> {
    Spanned::new(new, node.span())
}

/// Returns the target of an assignment. Its names are not values.
fn target<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expr {
        Expr::List(it) => node!(Expr::List(it) { items: it.items.iter().map(target).collect() }),
        _ => expression(expr),
    }
}

/// Returns an expression with a guard around its value.
fn guard<'a>(name: &'static str, expr: Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    let guard = Expr::Var(Spanned::new(ast::Var { id: name }, span));
    Expr::GetItem(Spanned::new(ast::GetItem { expr: guard, subscript_expr: expr }, span))
}

/// Returns an expression whose value is about to be walked, with a guard.
fn guarded<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expr {
        // Arithmetic makes numbers, and most keys are numbers.
        Expr::Const(_) | Expr::UnaryOp(_) => expression(expr),
        Expr::BinOp(it) if matches!(it.op, ast::BinOpKind::Sub | ast::BinOpKind::Div | ast::BinOpKind::FloorDiv) => {
            expression(expr)
        }
        // These expressions guard their own values.
        Expr::Slice(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) | Expr::Filter(_) | Expr::Call(_) => expression(expr),
        _ => guard(VALUE, expression(expr)),
    }
}

fn guarded_arguments<'a>(arguments: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let one = |argument: &CallArg<'a>| match argument {
        CallArg::Pos(expr) => CallArg::Pos(guarded(expr)),
        CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, guarded(expr)),
        CallArg::PosSplat(expr) => CallArg::PosSplat(guarded(expr)),
        CallArg::KwargSplat(expr) => CallArg::KwargSplat(guarded(expr)),
    };
    arguments.iter().map(one).collect()
}

/// Returns an expression with guards. A value that it makes gets a guard. A value that it only
/// looks up was guarded when it was made.
fn expression<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let all = |items: &[Expr<'a>], one: fn(&Expr<'a>) -> Expr<'a>| items.iter().map(one).collect::<Vec<_>>();
    match expr {
        Expr::Var(it) => node!(Expr::Var(it) { id: it.id }),
        Expr::Const(it) => node!(Expr::Const(it) { value: it.value.clone() }),
        Expr::UnaryOp(it) => {
            // The kind of operator is not `Copy`.
            #[allow(clippy::needless_match)]
            let op = match it.op {
                ast::UnaryOpKind::Not => ast::UnaryOpKind::Not,
                ast::UnaryOpKind::Neg => ast::UnaryOpKind::Neg,
            };
            node!(Expr::UnaryOp(it) { op, expr: expression(&it.expr) })
        }
        Expr::BinOp(it) => {
            use ast::BinOpKind as Op;
            let with = |operand: fn(&Expr<'a>) -> Expr<'a>| node!(Expr::BinOp(it) { op: it.op, left: operand(&it.left), right: operand(&it.right) });
            match it.op {
                Op::Eq | Op::Ne | Op::Lt | Op::Lte | Op::Gt | Op::Gte | Op::In | Op::Concat => with(guarded),
                Op::Add | Op::Mul | Op::Rem | Op::Pow => guard(VALUE, with(expression)),
                Op::ScAnd | Op::ScOr | Op::Sub | Op::Div | Op::FloorDiv => with(expression),
            }
        }
        Expr::Compare(it) => {
            let ops = it.ops.iter().map(|right| ast::CompareOp { op: right.op, expr: guarded(&right.expr) }).collect();
            node!(Expr::Compare(it) { expr: guarded(&it.expr), ops })
        }
        Expr::IfExpr(it) => node!(Expr::IfExpr(it) {
            test_expr: expression(&it.test_expr),
            true_expr: expression(&it.true_expr),
            false_expr: it.false_expr.as_ref().map(expression),
        }),
        Expr::Slice(it) => {
            let bound = |bound: &Option<Expr<'a>>| bound.as_ref().map(expression);
            let (start, stop, step) = (bound(&it.start), bound(&it.stop), bound(&it.step));
            guard(VALUE, node!(Expr::Slice(it) { expr: expression(&it.expr), start, stop, step }))
        }
        Expr::Filter(it) => {
            let input = if BRIEF_FILTERS.contains(&it.name) { expression } else { guarded };
            // The first filter of a block has no operand.
            let text = || guard(VALUE, Expr::Var(again(it, ast::Var { id: CAPTURED })));
            let (expr, args) = (it.expr.as_ref().map_or_else(text, input), guarded_arguments(&it.args));
            guard(VALUE, node!(Expr::Filter(it) { name: it.name, expr: Some(expr), args }))
        }
        Expr::Test(it) => {
            let input = if BRIEF_TESTS.contains(&it.name) { expression } else { guarded };
            let args = guarded_arguments(&it.args);
            node!(Expr::Test(it) { name: it.name, expr: input(&it.expr), args })
        }
        Expr::GetAttr(it) => node!(Expr::GetAttr(it) { expr: expression(&it.expr), name: it.name }),
        Expr::GetItem(it) => {
            let subscript_expr = guarded(&it.subscript_expr);
            node!(Expr::GetItem(it) { expr: expression(&it.expr), subscript_expr })
        }
        Expr::Call(it) => {
            // A method walks its text or list.
            let callee = match &it.expr {
                Expr::GetAttr(method) => node!(Expr::GetAttr(method) { expr: guarded(&method.expr), name: method.name }),
                callee => expression(callee),
            };
            guard(VALUE, node!(Expr::Call(it) { expr: callee, args: guarded_arguments(&it.args) }))
        }
        Expr::List(it) => guard(VALUE, node!(Expr::List(it) { items: all(&it.items, expression) })),
        Expr::Tuple(it) => guard(VALUE, node!(Expr::Tuple(it) { items: all(&it.items, expression) })),
        Expr::Map(it) => {
            let (keys, values) = (all(&it.keys, guarded), all(&it.values, expression));
            guard(VALUE, node!(Expr::Map(it) { keys, values }))
        }
    }
}
